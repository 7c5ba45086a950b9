//! Delayed scaling: a tensor is scaled by what the same tensor was in the last steps, so that no rank waits for a maximum
//! (Micikevicius et al. 2022; Transformer Engine). `exponents` counts a tensor's numbers by their exponents, which sums over shards and
//! micro-batches; `ages` notes once a step how long ago each exponent was seen; `delayed_scale` reads the largest one of late.

use super::quantise::eight_bits;
use super::{Attr, Attrs, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// The exponents of f32: 0 for numbers below the normal ones, 255 for what is not finite.
pub const EXPONENTS: u64 = 256;

/// `exponents(%x)`: `x [..] -> f32[256]`, the number of elements of each biased exponent of f32.
#[derive(Clone, PartialEq, Debug)]
pub struct Exponents;

impl Exponents {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["exponents"];

    pub(super) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<Exponents, String> {
        Ok(Exponents)
    }
}

impl OpDef for Exponents {
    fn name(&self) -> &'static str {
        "exponents"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        operands::float("x", x)?;
        Ok(vec![Type::new(DType::F32, vec![Dim::sized(EXPONENTS)])])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        format!("*m+ -> {EXPONENTS}")
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(operands[0].elements(), operands, results)
    }
}

/// `ages(%ages, %seen, %clip)`: `ages [..], seen [..], clip f32[] -> ages`, all f32. Where `seen` is above 0 the age becomes 0, elsewhere it
/// grows by 1. A `clip` that is not above 0 leaves all as it is: the step is skipped.
#[derive(Clone, PartialEq, Debug)]
pub struct Ages;

impl Ages {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["ages"];

    pub(super) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<Ages, String> {
        Ok(Ages)
    }
}

impl OpDef for Ages {
    fn name(&self) -> &'static str {
        "ages"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { updates: &[0], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [ages, seen, clip] = operands::take(operands, "ages, seen, clip")?;
        operands::expect("ages", ages, DType::F32, &ages.dims)?;
        operands::expect("seen", seen, DType::F32, &ages.dims)?;
        operands::expect("clip", clip, DType::F32, &[])?;
        Ok(vec![ages.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*, *, () -> *".to_string()
    }
}

/// `delayed_scale(%ages, to=f8e4m3, within=16)`: `ages f32[256] -> f32[]`, the least power of two by which numbers with the largest
/// finite exponent of an age below `within` are divided to be within an 8-bit format, but at least 2^-126; 1 if there is none.
#[derive(Clone, PartialEq, Debug)]
pub struct DelayedScale {
    /// The format.
    pub to: DType,
    /// The number of steps that count.
    pub within: u64,
}

impl DelayedScale {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["delayed_scale"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<DelayedScale, String> {
        Ok(DelayedScale { to: eight_bits(attrs)?, within: attrs.int("within")? })
    }
}

impl OpDef for DelayedScale {
    fn name(&self) -> &'static str {
        "delayed_scale"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("to", Attr::Word(self.to.name().to_string())), ("within", Attr::int(self.within))]
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [ages] = operands::take(operands, "ages")?;
        operands::expect("ages", ages, DType::F32, &[Dim::sized(EXPONENTS)])?;
        Ok(vec![Type::scalar(DType::F32)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        format!("{EXPONENTS} -> ()")
    }
}
