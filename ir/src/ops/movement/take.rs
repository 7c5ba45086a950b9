//! `take(%x, %index, dim=1)`: entries of one dim by index, and `scatter_add`, which adds them up at their indices.

use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// The dim that an index selects from, and how many leading dims the index shares with the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selected {
    /// The dim.
    pub dim: usize,
    /// The number of leading batch dims: each of their indices has its own list of indices.
    pub batch: usize,
}

impl Selected {
    fn parse(attrs: &mut Attrs) -> Result<Selected, String> {
        Ok(Selected { dim: attrs.int("dim")? as usize, batch: attrs.optional_int("batch")?.unwrap_or(0) as usize })
    }

    fn attrs(self) -> Vec<(&'static str, Attr)> {
        let batch = (self.batch > 0).then(|| ("batch", Attr::int(self.batch as u64)));
        [("dim", Attr::int(self.dim as u64))].into_iter().chain(batch).collect()
    }

    /// The dims of the list of indices at each place, after checks of the index of `x`, whose rank is given.
    fn picks(self, x: &Type, rank: usize, index: &Type) -> Result<Vec<Dim>, String> {
        let Selected { dim, batch } = self;
        operands::expect("index", index, DType::I32, &index.dims)?;
        if dim >= rank || batch > dim {
            return Err(format!("there is no dim {dim} after {batch} shared dims; the rank is {rank}"));
        }
        match index.dims.get(..batch) {
            Some(shared) if shared.iter().zip(&x.dims).all(|(a, b)| a.size == b.size) => {
                Ok(index.logical().dims.split_off(batch))
            }
            _ => Err(format!("`index` {:?} must start with the first {batch} dims of {:?}", index.sizes(), x.sizes())),
        }
    }

    /// The factors of the tensor, of the index, and of the selected entries: `b m n h`, `b k` and `b m k h`.
    fn factors(self, rank: usize, picks: usize, n: &str, k: &str) -> [String; 3] {
        let run = |factor: &str, count: usize, mark: &str| -> Vec<String> {
            (0..count).map(|place| format!("{factor}{place}{mark}")).collect()
        };
        let (b, m) = (run("b", self.batch, ""), run("m", self.dim - self.batch, ""));
        let (h, k, n) = (run("h", rank - self.dim - 1, ""), run("k", picks, k), vec![format!("n{n}")]);
        [[&b[..], &m, &n, &h].concat(), [&b[..], &k].concat(), [&b[..], &m, &k, &h].concat()]
            .map(|factors| if factors.is_empty() { "()".to_string() } else { factors.join(" ") })
    }
}

/// `(x [*b, *m, n, *h], index i32[*b, *k]) -> [*b, *m, *k, *h]`: the entries of n at the indices, zeros where an index is
/// outside. On a rank with a shard of n, indices of other shards give zeros, so the result is a partial sum.
#[derive(Clone, PartialEq, Debug)]
pub struct Take {
    /// The position of n.
    pub at: Selected,
}

impl Take {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["take"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Take, String> {
        Ok(Take { at: Selected::parse(attrs)? })
    }
}

impl OpDef for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.at.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, index] = operands::take(operands, "x, index")?;
        let x = x.logical();
        let dtype = operands::float("x", &x)?;
        let picks = self.at.picks(&x, x.rank(), index)?;
        super::slice::sliced_dim(&x, self.at.dim)?;
        Ok(vec![Type::new(dtype, [&x.dims[..self.at.dim], &picks, &x.dims[self.at.dim + 1..]].concat())])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let picks = operands[1].rank() - self.at.batch;
        let [x, index, y] = self.at.factors(operands[0].rank(), picks, "+", "");
        format!("{x}, {index} -> {y}")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None; 2]) };
        let whole = b.ty(call.operands[0]).logical().dims[self.at.dim].clone();
        Ok(vec![Some(b.one(ScatterAdd { at: self.at, whole }, &[dy, call.operands[1]])?), None])
    }

    /// The index, and of x only what is selected.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work { flops: 0, bytes: operands[1].bytes() + 2 * results[0].bytes() }
    }
}

/// `(y [*b, *m, *k, *h], index i32[*b, *k]) -> [*b, *m, n, *h]`: at each index of n, the sum of the entries with this index;
/// entries with an index out of range are skipped. The stated result type gives n. The transpose of [`Take`].
#[derive(Clone, PartialEq, Debug)]
pub struct ScatterAdd {
    /// The position of n.
    pub at: Selected,
    /// The dim n, logical.
    pub whole: Dim,
}

impl ScatterAdd {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["scatter_add"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<ScatterAdd, String> {
        let at = Selected::parse(attrs)?;
        let result = shapes.results.first().ok_or("has no result")?.logical();
        let whole = result.dims.get(at.dim).ok_or_else(|| format!("there is no dim {} in the result", at.dim))?;
        Ok(ScatterAdd { at, whole: whole.clone() })
    }
}

impl OpDef for ScatterAdd {
    fn name(&self) -> &'static str {
        "scatter_add"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.at.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [y, index] = operands::take(operands, "y, index")?;
        let (y, Selected { dim, batch }) = (y.logical(), self.at);
        let dtype = operands::float("y", &y)?;
        let picks = self.at.picks(&y, (y.rank() + 1 + batch).saturating_sub(index.rank()), index)?;
        let end = dim + picks.len();
        if y.dims[dim..end].iter().zip(&picks).any(|(a, b)| a.size != b.size) {
            return Err(format!("`y` {:?} must have the indices {:?} at dim {dim}", y.sizes(), index.sizes()));
        }
        let whole = std::slice::from_ref(&self.whole);
        Ok(vec![Type::new(dtype, [&y.dims[..dim], whole, &y.dims[end..]].concat())])
    }

    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String {
        let picks = operands[1].rank() - self.at.batch;
        let [x, index, y] = self.at.factors(results[0].rank(), picks, "", "+");
        format!("{y}, {index} -> {x}")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dx), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None; 2]) };
        Ok(vec![Some(b.one(Take { at: self.at }, &[dx, call.operands[1]])?), None])
    }

    /// One sum per element of y. The index, y, the zeros of the result, and what is read and written of it.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work {
            flops: operands[0].elements(),
            bytes: operands[1].bytes() + 3 * operands[0].bytes() + results[0].bytes(),
        }
    }
}
