//! Blocks of models in primitives.
