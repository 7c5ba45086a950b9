//! Lower bounds against the memory budget.

/// Relative tolerance on bounds, which sum the terms of a price in another order.
pub const ROUNDING: f64 = 1e-9;

/// Returns whether a lower bound of `bytes` fits the memory budget, if there is one.
pub fn fits_budget(bytes: f64, memory: Option<f64>) -> bool {
    memory.is_none_or(|memory| bytes * (1.0 - ROUNDING) <= memory)
}
