//! `einsum(%x, %w, eq="b s h, h g r d -> b s g r d")`: the contraction. Matmul, batched matmul and their gradients are
//! instances. One operand or two; a factor that the result lacks is summed.
//!
//! `einsum(%x, %w, %x.scale, %w.scale, eq=.., to=bf16)` is that of two 8-bit operands, each times the scales of its blocks.
//!
//! `einsum(%x, %w, %n, eq="q e c h, e h m -> q e c m", rows=2, mean=8)` is that of chunks of rows, `c`, of which `%n` says how many are
//! filled. The others are zeros, and no kernel need compute with them.

use super::definition::blocks::{Along, between};
use super::definition::equation::print_labels;
use super::{
    Attr, Attrs, Builder, Contraction, Cotangents, Equation, Extras, Linear, Op, OpClass, OpDef, OpFacts, Ragged, Rows,
    Shapes, Work, operands,
};
use crate::ids::Value;
use crate::types::{DType, Type};
use std::collections::BTreeMap;

/// A contraction of one or two operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Einsum {
    /// The factors of the dims; those that the result lacks are summed.
    pub equation: Equation,
    /// The type of the result, if two 8-bit operands are followed by their scales.
    pub scaled: Option<DType>,
    /// The rows of the first operand, if two operands are followed by the numbers of its rows that are filled.
    pub ragged: Option<Ragged>,
}

impl Einsum {
    /// Its name.
    pub const NAMES: &'static [&'static str] = &["einsum"];

    /// From an equation as text.
    ///
    /// # Errors
    /// The text is not an equation of one or two operands, or its result has a factor that no operand has.
    pub fn new(text: &str) -> Result<Einsum, String> {
        let equation = Equation::parse(text)?;
        if equation.operands.len() > 2 {
            return Err(format!("`{text}` has more than two operands"));
        }
        if let Some(label) = equation.free_labels().next() {
            return Err(format!("no operand of `{text}` has `{label}`"));
        }
        Ok(Einsum { equation, scaled: None, ragged: None })
    }

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Einsum, String> {
        let mut einsum = Einsum::new(&attrs.string("eq")?)?;
        if let Some(ragged) = Ragged::parse(attrs)? {
            let two = einsum.equation.operands.len() == 2 && ragged.rows < einsum.equation.operands[0].len();
            einsum.ragged = Some(ragged).filter(|_| two);
            return einsum.ragged.map(|_| einsum).ok_or("`rows` is no dim of the first of two operands".to_string());
        }
        let Some(to) = attrs.take("to") else { return Ok(einsum) };
        let Attr::Word(word) = to else { return Err("`to` must be a word".to_string()) };
        let dtype = DType::from_name(&word).filter(|dtype| dtype.is_float() && dtype.bytes() > 1);
        let dtype = dtype.ok_or_else(|| format!("`{word}` is no type of a scaled contraction: f32, bf16 or f16"))?;
        einsum.scaled(dtype)
    }

    /// The contraction of 8-bit operands with scales, whose result has this type.
    ///
    /// # Errors
    /// It has not two operands.
    pub fn scaled(self, to: DType) -> Result<Einsum, String> {
        if self.equation.operands.len() != 2 {
            return Err(format!("`{}` must have two operands to be scaled", self.equation.print()));
        }
        Ok(Einsum { scaled: Some(to), ..self })
    }

    /// Checks two 8-bit operands and their scales.
    fn check_scaled(&self, operands: &[&Type]) -> Result<(), String> {
        let &[a, b, a_scale, b_scale] = operands else {
            return Err(format!("takes 2 operands and their scales, not {}", operands.len()));
        };
        if [a, b].iter().any(|ty| !ty.dtype.is_float() || ty.dtype.bytes() != 1) {
            return Err("operands with scales must be of 8 bits".to_string());
        }
        if [a_scale, b_scale].iter().any(|ty| ty.dtype != DType::F32) {
            return Err("its scales must be f32".to_string());
        }
        self.divided(&Einsum::along(operands)?).map(drop)
    }

    /// The blocks of each operand's dims.
    fn along(operands: &[&Type]) -> Result<[Vec<Along>; 2], String> {
        Ok([between("a", operands[0], operands[2])?, between("b", operands[1], operands[3])?])
    }

    /// The blocks of the factors that have any: the same in both operands that have them.
    fn divided<'a>(&'a self, along: &[Vec<Along>; 2]) -> Result<BTreeMap<&'a str, Along>, String> {
        let mut divided = BTreeMap::new();
        let all = self.equation.operands.iter().zip(along).flat_map(|(labels, along)| labels.iter().zip(along));
        for (label, &along) in all.filter(|(_, along)| matches!(along, Along::Blocks(_))) {
            if divided.insert(label.as_str(), along).is_some_and(|other| other != along) {
                return Err(format!("`{label}` has blocks of two sizes"));
            }
        }
        Ok(divided)
    }

    /// The rule of a contraction with scales: `m (k+ k'+=128), (k+ k'+=128) (n n'=128), m k, k n -> m (n n'=128)`.
    fn scaled_rule(&self, operands: &[&Type]) -> Result<String, String> {
        let along = Einsum::along(operands)?;
        let divided = self.divided(&along)?;
        let term = |label: &String| {
            let mark = if self.equation.result.contains(label) { "" } else { "+" };
            divided.get(label.as_str()).unwrap_or(&Along::Each).of_tensor(label, mark, mark)
        };
        let scale = |(label, along): (&String, &Along)| match along {
            Along::Each => term(label),
            along => along.of_scales(label),
        };
        let tensor = |labels: &Vec<String>| print_labels(&labels.iter().map(term).collect::<Vec<_>>());
        let scales =
            |at: usize| print_labels(&self.equation.operands[at].iter().zip(&along[at]).map(scale).collect::<Vec<_>>());
        let [a, b] = [0, 1].map(|at| tensor(&self.equation.operands[at]));
        Ok(format!("{a}, {b}, {}, {} -> {}", scales(0), scales(1), tensor(&self.equation.result)))
    }

    /// Checks the numbers of filled rows, which follow two operands.
    fn check_counts(&self, tensors: &[&Type], rows: usize) -> Result<(), String> {
        let &[a, _, counts] = tensors else {
            return Err(format!("takes 2 operands and the numbers of filled rows, not {}", tensors.len()));
        };
        let chunks = a.dims.get(..rows).ok_or_else(|| format!("there is no dim {rows}; the rank is {}", a.rank()))?;
        operands::expect("counts", counts, DType::I32, chunks)
    }

    /// The rule of a contraction of chunks: the dims that number them are those of the counts, too, and each is replicated as a whole.
    fn ragged_rule(&self, rows: usize) -> String {
        let chunks = &self.equation.operands[0];
        let term = |label: &String| match () {
            () if *label == chunks[rows] => format!("{label}!"),
            () if self.equation.result.contains(label) => label.clone(),
            () => format!("{label}+"),
        };
        let tensor = |labels: &[String]| print_labels(&labels.iter().map(term).collect::<Vec<_>>());
        let operands = self.equation.operands.iter().map(Vec::as_slice).chain([&chunks[..rows]]);
        let operands: Vec<String> = operands.map(tensor).collect();
        format!("{} -> {}", operands.join(", "), tensor(&self.equation.result))
    }

    /// The share of rows that are filled on average, in elements of a tensor with these factors.
    fn filled(&self, labels: &[String], tensors: &[&Type], elements: u64) -> u64 {
        let filled = self.ragged.filter(|ragged| labels.contains(&self.equation.operands[0][ragged.rows]));
        filled.map_or(elements, |ragged| ragged.mean_bytes(tensors[0], elements))
    }

    /// True for two operands, all of whose elements count.
    fn is_contraction(&self) -> bool {
        self.scaled.is_none() && self.ragged.is_none() && self.equation.operands.len() == 2
    }

    /// The equation of the cotangent of an operand: cotangent of the result times the other operand.
    fn transposed(&self, operand: usize) -> Equation {
        let mut operands = vec![self.equation.result.clone()];
        operands
            .extend(self.equation.operands.iter().enumerate().filter(|(i, _)| *i != operand).map(|(_, l)| l.clone()));
        Equation { operands, result: self.equation.operands[operand].clone() }
    }
}

impl OpDef for Einsum {
    fn name(&self) -> &'static str {
        "einsum"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let to = self.scaled.map(|dtype| ("to", Attr::Word(dtype.name().to_string())));
        let ragged = self.ragged.iter().flat_map(Ragged::attrs);
        [("eq", Attr::Str(self.equation.print()))].into_iter().chain(to).chain(ragged).collect()
    }

    fn facts(&self) -> OpFacts {
        let factors = if self.scaled.is_some() { 0 } else { self.equation.operands.len() };
        OpFacts { class: OpClass::Product, linear: Linear::First(factors), counts: self.ragged, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        if let Some(to) = self.scaled {
            self.check_scaled(operands)?;
            return Ok(vec![Type::new(to, self.equation.result_dims(&operands[..2], &[])?)]);
        }
        let mut operands = operands;
        if let Some(ragged) = self.ragged {
            self.check_counts(operands, ragged.rows)?;
            operands = &operands[..2];
        }
        let dims = self.equation.result_dims(operands, &[])?;
        if operands.iter().any(|ty| ty.dtype != operands[0].dtype || !ty.dtype.is_float()) {
            return Err("its operands must be floats of one type".to_string());
        }
        Ok(vec![Type::new(operands[0].dtype, dims)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let scaled = self.scaled.and_then(|_| self.scaled_rule(operands).ok());
        let ragged = || self.ragged.map(|ragged| self.ragged_rule(ragged.rows));
        scaled.or_else(ragged).unwrap_or_else(|| self.equation.rule("+"))
    }

    /// For `y = einsum(a, b)`: `da = einsum(dy, b)` and `db = einsum(a, dy)`, the transposed equations. A summed
    /// factor of one operand alone is restored by broadcast.
    fn gradient(&self, builder: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let Some(dy) = call.given[0] else { return Ok(vec![None; call.operands.len()]) };
        if self.scaled.is_some() {
            return Err("a contraction of 8-bit operands has no gradient; quantise after differentiation".to_string());
        }
        if self.ragged.is_some() {
            return Err("a contraction of chunks has no gradient; rows are counted after differentiation".to_string());
        }
        let mut cotangents = Vec::new();
        for operand in 0..call.operands.len() {
            if !call.needed[operand] {
                cotangents.push(None);
                continue;
            }
            let equation = self.transposed(operand);
            if let Some(label) = equation.free_labels().next() {
                return Err(format!(
                    "`einsum` has no gradient where `{label}` is summed within one operand; use `reduce`"
                ));
            }
            let mut operands = vec![dy];
            operands.extend(call.operands.iter().enumerate().filter(|(i, _)| *i != operand).map(|(_, &v)| v));
            cotangents.push(Some(builder.one(Einsum { equation, scaled: None, ragged: None }, &operands)?));
        }
        Ok(cotangents)
    }

    /// A product of two matrices without batch: letters of the first operand, then letters of the second one.
    fn rows(&self, _: &[&Type]) -> Option<Rows> {
        if !self.is_contraction() {
            return None;
        }
        let Equation { operands, result } = &self.equation;
        let only = |at: usize| {
            let other = &operands[1 - at];
            operands[at].iter().filter(move |letter| !other.contains(letter) && result.contains(letter))
        };
        let rows = only(0).count();
        let is_matrix = (1..result.len()).contains(&rows) && only(0).chain(only(1)).eq(result);
        is_matrix.then(|| Rows::product(rows))
    }

    /// Two operations per multiply-add, over the product of all factors. Every operand and every result once. Of chunks, the rows
    /// that are filled on average.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let Equation { operands: labels, result } = &self.equation;
        let mut summed: Vec<&String> = labels.iter().flatten().filter(|label| !result.contains(label)).collect();
        summed.sort();
        summed.dedup();
        let sizes = summed.iter().filter_map(|label| self.equation.dim(label, operands)).map(|dim| dim.size);
        let flops = sizes.fold(results[0].elements().saturating_mul(2), u64::saturating_mul);
        let labelled = operands.iter().zip(labels.iter().map(Vec::as_slice).chain([&[][..]; 2]));
        let read: u64 = labelled.map(|(ty, labels)| self.filled(labels, operands, ty.bytes())).sum();
        Work {
            flops: self.filled(&labels[0], operands, flops),
            bytes: read + self.filled(result, operands, results[0].bytes()),
        }
    }

    fn extras(&self) -> Extras<'_> {
        let contraction: Option<&dyn Contraction> = if self.is_contraction() { Some(self) } else { None };
        Extras { contraction, ..Extras::default() }
    }
}

impl Contraction for Einsum {
    fn equation(&self) -> &Equation {
        &self.equation
    }

    fn with_scales(&self, to: DType) -> Op {
        Einsum { equation: self.equation.clone(), scaled: Some(to), ragged: None }.into()
    }

    fn with_counts(&self, ragged: Ragged) -> Option<Op> {
        let op = || Einsum { equation: self.equation.clone(), scaled: None, ragged: Some(ragged) };
        (ragged.rows < self.equation.operands[0].len()).then(|| op().into())
    }
}
