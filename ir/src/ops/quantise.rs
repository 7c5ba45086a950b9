//! Quantisation to 8 bits: `absmax` measures blocks of a tensor, `scale_for` makes scales of the maxima, and `quantise` divides by them.
//! A contraction of quantised operands multiplies by their scales ([`Einsum`](super::Einsum)).

use super::definition::blocks::{Along, between};
use super::definition::equation::print_labels;
use super::{Attr, Attrs, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// `absmax(%x, block="1 1 128")`: the largest size of an element in each block, in f32; 0 for a block without elements, and elements
/// that are not a number do not count. The blocks of a dim have the stated number of indices, or `all`.
#[derive(Clone, PartialEq, Debug)]
pub struct AbsMax {
    /// Indices of a block along each dim; `None` for all.
    pub block: Vec<Option<u64>>,
}

impl AbsMax {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["absmax"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<AbsMax, String> {
        let text = attrs.string("block")?;
        let size = |word: &str| match word.parse() {
            Ok(size) if size > 0 => Ok(Some(size)),
            _ if word == "all" => Ok(None),
            _ => Err(format!("`{word}` in `block` must be a number of indices, or `all`")),
        };
        Ok(AbsMax { block: text.split_whitespace().map(size).collect::<Result<_, _>>()? })
    }
}

impl OpDef for AbsMax {
    fn name(&self) -> &'static str {
        "absmax"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let word = |size: &Option<u64>| size.map_or("all".to_string(), |size| size.to_string());
        vec![("block", Attr::Str(self.block.iter().map(word).collect::<Vec<_>>().join(" ")))]
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        operands::float("x", x)?;
        if x.rank() != self.block.len() {
            return Err(format!("`block` has {} sizes for an operand of rank {}", self.block.len(), x.rank()));
        }
        let scales = |(dim, block): (Dim, &Option<u64>)| match *block {
            Some(1) => Ok(dim),
            _ if dim.count.is_some() => Err("a dynamic dim has no blocks".to_string()),
            None => Ok(Dim::sized(1)),
            Some(size) if dim.size.is_multiple_of(size) => Ok(Dim::sized(dim.size / size)),
            Some(size) => Err(format!("blocks of {size} do not divide a dim of {}", dim.size)),
        };
        let dims = x.logical().dims.into_iter().zip(&self.block).map(scales).collect::<Result<_, _>>()?;
        Ok(vec![Type::new(DType::F32, dims)])
    }

    /// `m k -> m`, blocks along k: `m (k k'+max=128) -> m k`.
    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String {
        let along = between("x", operands[0], results[0]).unwrap_or_default();
        format!("{} -> {}", side(&along, |of, label| of.of_tensor(label, "", "+max")), side(&along, Along::of_scales))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(operands[0].elements(), operands, results)
    }
}

/// `scale_for(%max, to=f8e4m3)`: the least power of two by which numbers of at most this size are divided to be within an 8-bit format,
/// but at least 2^-126. Quotients and products with it are exact.
#[derive(Clone, PartialEq, Debug)]
pub struct ScaleFor {
    /// The format.
    pub to: DType,
}

impl ScaleFor {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["scale_for"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ScaleFor, String> {
        Ok(ScaleFor { to: eight_bits(attrs)? })
    }
}

impl OpDef for ScaleFor {
    fn name(&self) -> &'static str {
        "scale_for"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("to", Attr::Word(self.to.name().to_string()))]
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [max] = operands::take(operands, "max")?;
        operands::expect("max", max, DType::F32, &max.dims)?;
        Ok(vec![max.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "* -> *".to_string()
    }
}

/// `quantise(%x, %scale, to=f8e4m3)`: the elements over the scales of their blocks, as 8-bit numbers. What exceeds the format becomes its
/// largest number.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantise {
    /// The format.
    pub to: DType,
}

impl Quantise {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["quantise"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Quantise, String> {
        Ok(Quantise { to: eight_bits(attrs)? })
    }
}

impl OpDef for Quantise {
    fn name(&self) -> &'static str {
        "quantise"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("to", Attr::Word(self.to.name().to_string()))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { keeps_zeros: &[&[0]], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, scale] = operands::take(operands, "x, scale")?;
        operands::float("x", x)?;
        operands::expect("scale", scale, DType::F32, &scale.dims)?;
        between("x", x, scale)?;
        Ok(vec![Type { dtype: self.to, ..x.logical() }])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let along = between("x", operands[0], operands[1]).unwrap_or_default();
        let x = side(&along, |of, label| of.of_tensor(label, "", ""));
        format!("{x}, {} -> {x}", side(&along, Along::of_scales))
    }
}

/// One tensor of a rule, from the term of each dim.
fn side(along: &[Along], term: impl Fn(Along, &str) -> String) -> String {
    let terms: Vec<String> = along.iter().enumerate().map(|(at, along)| term(*along, &format!("a{at}"))).collect();
    print_labels(&terms)
}

/// The format that an attribute names.
pub(super) fn eight_bits(attrs: &mut Attrs) -> Result<DType, String> {
    let word = attrs.word("to")?;
    let dtype = DType::from_name(&word).filter(|dtype| dtype.bytes() == 1);
    dtype.ok_or_else(|| format!("`{word}` is no 8-bit format: f8e4m3 or f8e5m2"))
}
