//! The `policy` stage.
