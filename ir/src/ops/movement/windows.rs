//! `windows(%x, dim=1, size=3)`: the overlapping windows of a dim, and `fold`, which sums them back. A convolution is an
//! einsum over the windows of a padded tensor, a pooling a reduction of them, and windows of one element are a strided slice.

use super::slice::{cotangent, sliced_dim};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{Dim, Type};

/// The windows of a dim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The dim.
    pub dim: usize,
    /// The elements of a window.
    pub size: u64,
    /// The distance between the starts of successive windows.
    pub stride: u64,
    /// The distance between elements of a window.
    pub dilation: u64,
}

impl Frame {
    fn parse(attrs: &mut Attrs) -> Result<Frame, String> {
        let one = |given: Option<u64>| given.unwrap_or(1);
        Ok(Frame {
            dim: attrs.int("dim")? as usize,
            size: attrs.int("size")?,
            stride: one(attrs.optional_int("stride")?),
            dilation: one(attrs.optional_int("dilation")?),
        })
    }

    fn attrs(self) -> Vec<(&'static str, Attr)> {
        let given = [("stride", self.stride), ("dilation", self.dilation)];
        let given = given.into_iter().filter(|(_, step)| *step != 1);
        [("dim", self.dim as u64), ("size", self.size)]
            .into_iter()
            .chain(given)
            .map(|(n, v)| (n, Attr::int(v)))
            .collect()
    }

    /// The number of windows of a dim of size `n`.
    fn count(self, n: u64) -> Result<u64, String> {
        let Frame { size, stride, dilation, .. } = self;
        if size == 0 || stride == 0 || dilation == 0 {
            return Err("`size`, `stride` and `dilation` must be at least 1".to_string());
        }
        let rest = (size - 1).checked_mul(dilation).and_then(|reach| n.checked_sub(reach + 1));
        let rest = rest.ok_or_else(|| format!("no window of {size}, {dilation} apart, fits a dim of {n}"))?;
        Ok(rest / stride + 1)
    }

    /// The factors of the dim and of its windows, among those of the other dims.
    fn factors(self, rank: usize) -> [String; 2] {
        let line = |middle: &str| {
            let factor = |place| if place == self.dim { middle.to_string() } else { format!("m{place}") };
            (0..rank).map(factor).collect::<Vec<_>>().join(" ")
        };
        [line("n!"), line("o! k!")]
    }
}

/// `(x [*m, n, *h]) -> [*m, o, k, *h]`: element `(o, k)` is that at `o stride + k dilation`.
#[derive(Clone, PartialEq, Debug)]
pub struct Windows {
    /// The windows.
    pub frame: Frame,
}

impl Windows {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["windows"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Windows, String> {
        Ok(Windows { frame: Frame::parse(attrs)? })
    }
}

impl OpDef for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.frame.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        let dtype = operands::float("x", x)?;
        let Frame { dim, size, .. } = self.frame;
        let count = self.frame.count(sliced_dim(x, dim)?.size)?;
        let mut dims = x.logical().dims;
        dims.splice(dim..=dim, [Dim::sized(count), Dim::sized(size)]);
        Ok(vec![Type::new(dtype, dims)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        self.frame.factors(operands[0].rank()).join(" -> ")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let x = call.operands[0];
        let whole = b.ty(x).logical().dims[self.frame.dim].clone();
        Ok(vec![Some(cotangent(b, Fold { frame: self.frame, whole }, dy, x)?)])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}

/// `(y [*m, o, k, *h]) -> [*m, n, *h]`: at each element of n the sum over the windows that have it. The stated result type
/// gives n. The transpose of [`Windows`].
#[derive(Clone, PartialEq, Debug)]
pub struct Fold {
    /// The windows.
    pub frame: Frame,
    /// The dim n, logical.
    pub whole: Dim,
}

impl Fold {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["fold"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<Fold, String> {
        let frame = Frame::parse(attrs)?;
        let result = shapes.results.first().ok_or("has no result")?.logical();
        Ok(Fold { frame, whole: sliced_dim(&result, frame.dim)?.clone() })
    }
}

impl OpDef for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.frame.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [y] = operands::take(operands, "y")?;
        let dtype = operands::float("y", y)?;
        let Frame { dim, size, .. } = self.frame;
        let count = self.frame.count(self.whole.size)?;
        match (y.dims.get(dim), y.dims.get(dim + 1)) {
            (Some(o), Some(k)) if o.size == count && k.size == size => {}
            _ => return Err(format!("`y` {:?} must have {count} windows of {size} at dim {dim}", y.sizes())),
        }
        let mut dims = y.logical().dims;
        dims.splice(dim..=dim + 1, [self.whole.clone()]);
        Ok(vec![Type::new(dtype, dims)])
    }

    fn rule(&self, _: &[&Type], results: &[&Type]) -> String {
        let [whole, windows] = self.frame.factors(results[0].rank());
        format!("{windows} -> {whole}")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dx), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        Ok(vec![Some(cotangent(b, Windows { frame: self.frame }, dx, call.operands[0])?)])
    }

    /// One sum per element of y.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(operands[0].elements(), operands, results)
    }
}
