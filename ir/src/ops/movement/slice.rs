//! `slice`, `pad` and `concat`: parts of a tensor along one dim, which must be unsharded.

use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, Op, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{Dim, Type};

/// The factors of a tensor of this rank, with a `!` factor at `dim`: `m0 i0! m2`.
pub(in crate::ops) fn factors(rank: usize, dim: usize, cut: &str) -> String {
    let factor = |place| if place == dim { format!("{cut}!") } else { format!("m{place}") };
    (0..rank).map(factor).collect::<Vec<_>>().join(" ")
}

/// The dim of an operand that is sliced or concatenated.
pub(in crate::ops) fn sliced_dim(x: &Type, dim: usize) -> Result<&Dim, String> {
    match x.dims.get(dim) {
        None => Err(format!("there is no dim {dim}; the rank is {}", x.rank())),
        Some(cut) if cut.count.is_some() => Err(format!("dim {dim} is dynamic")),
        Some(cut) => Ok(cut),
    }
}

/// The operand's type with another size in one dim.
pub(in crate::ops) fn resized(x: &Type, dim: usize, size: u64) -> Type {
    let mut ty = x.logical();
    ty.dims[dim] = Dim::sized(size);
    ty
}

/// Appends a statement whose result is a cotangent of `x`: it has the names of its dims.
pub(in crate::ops) fn cotangent(b: &mut Builder<'_>, op: impl Into<Op>, dy: Value, x: Value) -> Result<Value, String> {
    let dims = b.ty(x).logical().dims;
    let dx = b.one(op, &[dy])?;
    b.block.values[dx].ty.dims = dims;
    Ok(dx)
}

/// A range of one dim: `slice(%x, dim=1, start=0, length=64)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Slice {
    /// The dim.
    pub dim: usize,
    /// The first index.
    pub start: u64,
    /// The number of elements, at least 1.
    pub length: u64,
}

impl Slice {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["slice"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Slice, String> {
        Ok(Slice { dim: attrs.int("dim")? as usize, start: attrs.int("start")?, length: attrs.int("length")? })
    }
}

impl OpDef for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let (dim, start, length) = (self.dim as u64, self.start, self.length);
        vec![("dim", Attr::int(dim)), ("start", Attr::int(start)), ("length", Attr::int(length))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        let size = sliced_dim(x, self.dim)?.size;
        let end = self.start.checked_add(self.length);
        if self.length == 0 || end.is_none_or(|end| end > size) {
            return Err(format!("{} from {} is not a range of a dim of {size}", self.length, self.start));
        }
        Ok(vec![resized(x, self.dim, self.length)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let rank = operands[0].rank();
        format!("{} -> {}", factors(rank, self.dim, "i"), factors(rank, self.dim, "j"))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let x = call.operands[0];
        let after = sliced_dim(b.ty(x), self.dim)?.size - self.start - self.length;
        let pad = Pad { dim: self.dim, before: self.start, after };
        Ok(vec![Some(cotangent(b, pad, dy, x)?)])
    }

    /// Only the range is read.
    fn work(&self, _: &[&Type], results: &[&Type]) -> Work {
        Work { flops: 0, bytes: 2 * results[0].bytes() }
    }
}

/// Zeros before and after one dim: `pad(%x, dim=1, before=0, after=64)`. The transpose of [`Slice`].
#[derive(Clone, PartialEq, Debug)]
pub struct Pad {
    /// The dim.
    pub dim: usize,
    /// The number of zeros before the dim.
    pub before: u64,
    /// The number of zeros after the dim.
    pub after: u64,
}

impl Pad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["pad"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Pad, String> {
        Ok(Pad { dim: attrs.int("dim")? as usize, before: attrs.int("before")?, after: attrs.int("after")? })
    }
}

impl OpDef for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let (dim, before, after) = (self.dim as u64, self.before, self.after);
        vec![("dim", Attr::int(dim)), ("before", Attr::int(before)), ("after", Attr::int(after))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        let size = sliced_dim(x, self.dim)?.size.checked_add(self.before).and_then(|size| size.checked_add(self.after));
        Ok(vec![resized(x, self.dim, size.ok_or("the padded dim is too large")?)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let rank = operands[0].rank();
        format!("{} -> {}", factors(rank, self.dim, "i"), factors(rank, self.dim, "j"))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let x = call.operands[0];
        let slice = Slice { dim: self.dim, start: self.before, length: sliced_dim(b.ty(x), self.dim)?.size };
        Ok(vec![Some(cotangent(b, slice, dy, x)?)])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}

/// Tensors one after the other along a dim: `concat(%x, %y, dim=1)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Concat {
    /// The dim.
    pub dim: usize,
}

impl Concat {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["concat"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Concat, String> {
        Ok(Concat { dim: attrs.int("dim")? as usize })
    }
}

impl OpDef for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("dim", Attr::int(self.dim as u64))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::From(0), is_recomputed: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let first = operands.first().ok_or("takes one operand or more")?;
        let mut total: u64 = 0;
        for ty in operands {
            let size = sliced_dim(ty, self.dim)?.size;
            if ty.dtype != first.dtype || resized(ty, self.dim, 1).sizes() != resized(first, self.dim, 1).sizes() {
                let (a, b) = (first.sizes(), ty.sizes());
                return Err(format!("its operands {a:?} and {b:?} differ in more than dim {}", self.dim));
            }
            total = total.checked_add(size).ok_or("the joined dim is too large")?;
        }
        Ok(vec![resized(first, self.dim, total)])
    }

    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String {
        let sides: Vec<String> =
            operands.iter().enumerate().map(|(i, ty)| factors(ty.rank(), self.dim, &format!("i{i}"))).collect();
        format!("{} -> {}", sides.join(", "), factors(results[0].rank(), self.dim, "k"))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let Some(dy) = call.given[0] else { return Ok(vec![None; call.operands.len()]) };
        let mut start = 0;
        let mut cotangents = Vec::new();
        for (&x, &needed) in call.operands.iter().zip(call.needed) {
            let length = sliced_dim(b.ty(x), self.dim)?.size;
            let slice = Slice { dim: self.dim, start, length };
            cotangents.push(if needed { Some(cotangent(b, slice, dy, x)?) } else { None });
            start += length;
        }
        Ok(cotangents)
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
