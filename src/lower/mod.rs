//! The `lower` stage.
