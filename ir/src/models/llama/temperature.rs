//! Factors of queries that grow with their positions.

use crate::models::draft::{Body, DraftError};
use crate::ops::{Binary, BinaryKind, UnaryKind};
use crate::types::DType;
use serde::Serialize;

/// How a temperature grows with the position `pos` of a query, over `n = (pos + ahead) / every`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Growth {
    /// `1 + by ln(1 + floor(n))` (Llama 4).
    Steps,
    /// `(1 + n)^by` (Beam).
    Power,
}

/// Factors of queries, which grow with their positions (Nakanishi 2025, Scalable-Softmax).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Temperature {
    /// How they grow.
    pub growth: Growth,
    /// Tokens from one factor to the next.
    pub every: u64,
    /// How strongly it grows.
    pub by: f64,
    /// The places by which positions are ahead.
    pub ahead: u64,
    /// Layers with positions have it; else those without them.
    pub turned: bool,
}

impl Temperature {
    /// `y`, `x` times its temperature, computed in f32.
    pub(super) fn build(self, b: &mut Body<'_>, dims: &str, y: &str, x: &str) -> Result<(), DraftError> {
        let Temperature { growth, every, by, ahead, .. } = self;
        let dtype = b.dtype(x)?;
        b.unary("at", UnaryKind::Cast(DType::F32), "pos")?;
        // Half a token more keeps whole quotients whole under rounding.
        let more = if growth == Growth::Steps { 0.5 } else { 0.0 };
        b.unary("at_next", UnaryKind::Shift(ahead as f64 + more), "at")?;
        b.unary("periods", UnaryKind::Scale(1.0 / every as f64), "at_next")?;
        let mut period = "periods";
        if growth == Growth::Steps {
            b.unary("period", UnaryKind::Floor, period)?;
            period = "period";
        }
        b.unary("period_next", UnaryKind::Shift(1.0), period)?;
        b.unary("period_log", UnaryKind::Log, "period_next")?;
        b.unary("growth", UnaryKind::Scale(by), "period_log")?;
        match growth {
            Growth::Steps => b.unary("temperature", UnaryKind::Shift(1.0), "growth")?,
            Growth::Power => b.unary("temperature", UnaryKind::Exp, "growth")?,
        }
        let product = Binary::spread(BinaryKind::Mul, &format!("b s {dims}, b s -> b s {dims}"))?;
        if dtype == DType::F32 {
            return b.op(&[y], product, &[x, "temperature"]);
        }
        b.unary("q_wide", UnaryKind::Cast(DType::F32), x)?;
        b.op(&["q_tempered"], product, &["q_wide", "temperature"])?;
        b.unary(y, UnaryKind::Cast(dtype), "q_tempered")
    }
}
