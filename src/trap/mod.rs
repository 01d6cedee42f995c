//! The `trap` stage.
