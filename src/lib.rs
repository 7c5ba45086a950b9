//! Meshwright.
