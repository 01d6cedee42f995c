//! The `linux` stage.
