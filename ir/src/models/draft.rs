//! Shared code of the model builders and of imports: a model under construction, whose dims have short names.

use crate::dim_role::DimRole;
use crate::entity::EntityRef;
use crate::graph::{
    ArgKind, Block, Call, Init, Model, ModelInput, Param, ParamIndex, ParamRef, Repeat, ResultKind, SectionKind, Span,
};
use crate::ids::{BlockId, ModelValue, Value};
use crate::ops::{Binary, BinaryKind, Builder, Einsum, Iota, Op, Unary, UnaryKind};
use crate::types::{DType, Dim, DimName, Dims, Type};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The size of one micro-batch, over all data-parallel ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Sequences.
    pub batch: u64,
    /// Tokens per sequence.
    pub seq: u64,
    /// Element type of parameters and activations; the loss and its scalars are f32.
    pub dtype: DType,
}

/// A parameter of a block, as the builders list them.
#[derive(Clone, PartialEq, Debug)]
pub struct Weight {
    /// The name of the block's argument, and of the field of the layer's array.
    pub name: Cow<'static, str>,
    /// Letters of named dims, or sizes: `"h g r d"`, `"1024 h"`.
    pub dims: String,
    /// Its initializer.
    pub init: Init,
    /// The matrix of which it is a part: [`Param::part_of`].
    pub part_of: Option<&'static str>,
    /// Its element type; none: that of the model.
    pub dtype: Option<DType>,
    /// It stays as it is.
    pub frozen: bool,
    /// No weight decay applies to it.
    pub undecayed: bool,
}

impl Weight {
    /// A matrix with normal initial numbers.
    pub fn normal(name: impl Into<Cow<'static, str>>, dims: &str, deviation: f64) -> Weight {
        Weight::new(name, dims, Init::Normal(deviation))
    }

    /// A gain (1) or a bias (0).
    pub fn constant(name: impl Into<Cow<'static, str>>, dims: &str, value: f64) -> Weight {
        Weight::new(name, dims, Init::Constant(value))
    }

    /// A parameter with another initializer.
    pub fn new(name: impl Into<Cow<'static, str>>, dims: &str, init: Init) -> Weight {
        Weight {
            name: name.into(),
            dims: dims.to_string(),
            init,
            part_of: None,
            dtype: None,
            frozen: false,
            undecayed: false,
        }
    }

    /// A table of waves of positions, which is not trained.
    pub fn waves(name: &'static str, dims: &str, fall: f64) -> Weight {
        Weight::new(name, dims, Init::Waves(fall)).frozen()
    }

    /// A record that notes numbers in f32; it begins with ones.
    pub fn record(name: &'static str, dims: &str) -> Weight {
        Weight { dtype: Some(DType::F32), ..Weight::constant(name, dims, 1.0) }
    }

    /// The same as a part of a matrix, along its last dim.
    #[must_use]
    pub fn part_of(self, whole: &'static str) -> Weight {
        Weight { part_of: Some(whole), ..self }
    }

    /// This weight as one that stays as it is.
    #[must_use]
    pub fn frozen(self) -> Weight {
        Weight { frozen: true, ..self }
    }

    /// This weight without weight decay.
    #[must_use]
    pub fn undecayed(self) -> Weight {
        Weight { undecayed: true, ..self }
    }

    /// True for matrices: weight decay applies to them, but not to gains and biases, as in the training of GPT-3 and its
    /// successors.
    fn decay(&self) -> bool {
        matches!(self.init, Init::Normal(_)) && !self.undecayed
    }
}

/// Error: a block of a model cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DraftError {
    /// The block has no value of this name.
    NoValue(String),
    /// An op does not accept its operands; the reason.
    Op(String),
    /// Attention to chosen keys in a layer without positions.
    NoPositions,
    /// A model without layers.
    NoLayers,
}

impl fmt::Display for DraftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DraftError::NoValue(name) => write!(f, "there is no `%{name}`"),
            DraftError::Op(why) => f.write_str(why),
            DraftError::NoPositions => f.write_str("attention to chosen keys has positions in each layer"),
            DraftError::NoLayers => f.write_str("there are no layers"),
        }
    }
}

impl std::error::Error for DraftError {}

impl From<String> for DraftError {
    fn from(why: String) -> DraftError {
        DraftError::Op(why)
    }
}

/// A model under construction.
pub struct Draft {
    model: Model,
    dtype: DType,
}

impl Draft {
    /// A model with its named dims, `b` and `s` first, and its four inputs.
    pub fn new(name: &str, batch: &Batch, dims: Vec<DimName>) -> Draft {
        let mut model = Model { name: name.to_string(), ..Model::default() };
        let batch_dims = [
            DimName::new("b", batch.batch, Some(DimRole::Batch)),
            DimName::new("s", batch.seq, Some(DimRole::Sequence)),
        ];
        model.dims = batch_dims.into_iter().chain(dims).collect();
        let mut draft = Draft { model, dtype: batch.dtype };
        ["tok", "lab", "pos", "seg"].into_iter().for_each(|name| draft.input(name));
        draft
    }

    /// A model with its named dims, `b` and `s` first, and no inputs.
    pub fn bare(name: &str, batch: &Batch, dims: Vec<DimName>) -> Draft {
        let mut draft = Draft::new(name, batch, dims);
        draft.model.inputs.clear();
        draft.model.values.clear();
        draft
    }

    /// Declares an input of one integer per token.
    pub fn input(&mut self, name: &str) {
        self.take(name, self.ids());
    }

    /// Declares an input.
    pub fn take(&mut self, name: &str, ty: Type) {
        let value = self.model.values.push(name.to_string());
        self.model.inputs.push(ModelInput { value, kind: ArgKind::Input, ty });
    }

    /// The type of one integer per token.
    pub fn ids(&self) -> Type {
        Type { dtype: DType::I32, ..self.ty("b s") }
    }

    /// The type of a float tensor of these letters.
    pub fn ty(&self, letters: &str) -> Type {
        Type::new(self.dtype, dims_of(&self.model.dims, letters))
    }

    fn weight_ty(&self, weight: &Weight) -> Type {
        let ty = self.ty(&weight.dims);
        Type { dtype: weight.dtype.unwrap_or(ty.dtype), ..ty }
    }

    /// The type of an f32 tensor of these letters.
    pub fn wide(&self, letters: &str) -> Type {
        Type { dtype: DType::F32, ..self.ty(letters) }
    }

    /// Declares single parameters.
    pub fn declare(&mut self, weights: &[Weight]) {
        for weight in weights {
            self.param(&weight.name, None, None, weight);
        }
    }

    /// Declares an array whose elements have these fields.
    pub fn declare_array(&mut self, name: &str, count: u32, fields: &[Weight]) {
        for weight in fields {
            self.param(name, Some(weight.name.to_string()), Some(count), weight);
        }
    }

    fn param(&mut self, name: &str, field: Option<String>, count: Option<u32>, weight: &Weight) {
        self.model.params.push(Param {
            name: name.to_string(),
            field,
            count,
            ty: self.weight_ty(weight),
            init: weight.init,
            decay: weight.decay(),
            frozen: weight.frozen,
            part_of: weight.part_of.map(str::to_string),
            comments: Vec::new(),
            span: Span::default(),
        });
    }

    /// Adds a block. `args` are its values and inputs; `body` builds `F` and gives the results.
    ///
    /// # Errors
    /// An op does not accept its operands.
    pub fn block(
        &mut self,
        name: &str,
        args: &[(&str, ArgKind, Type)],
        weights: &[Weight],
        results: &[ResultKind],
        body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Value>, DraftError>,
    ) -> Result<BlockId, DraftError> {
        let mut block = Block { name: name.to_string(), results: results.to_vec(), ..Block::default() };
        for (name, kind, ty) in args {
            block.add_arg(name, *kind, ty.clone());
        }
        for weight in weights {
            block.add_arg(&weight.name, ArgKind::Param, self.weight_ty(weight));
        }
        let mut body_of_block = Body { builder: Builder::new(&mut block), dims: &self.model.dims };
        let ret = body(&mut body_of_block)?;
        let stmts = body_of_block.builder.stmts;
        block[SectionKind::F].stmts = stmts;
        block[SectionKind::F].ret = ret;
        Ok(self.model.blocks.push(block))
    }

    /// Calls a block, once for each index of `repeat` where it is given; its results take the names, which spaces separate.
    pub fn call(&mut self, result: &str, block: BlockId, repeat: Option<Range<u32>>, args: &[&str], params: &[&str]) {
        let index = if repeat.is_some() { ParamIndex::Repeat } else { ParamIndex::Whole };
        let params = params.iter().map(|name| ParamRef { name: (*name).to_string(), index: index.clone() });
        self.call_with(result, block, repeat, args, params.collect());
    }

    /// Calls a block as `call` does, with references to parameters of any kind.
    pub fn call_with(
        &mut self,
        result: &str,
        block: BlockId,
        repeat: Option<Range<u32>>,
        args: &[&str],
        params: Vec<ParamRef>,
    ) {
        let args = args.iter().filter_map(|name| self.value(name)).collect();
        let results = result.split_whitespace().map(|name| self.model.values.push(name.to_string())).collect();
        self.model.calls.push(Call {
            results,
            block,
            repeat: repeat.map(|range| Repeat { variable: "i".to_string(), range }),
            args,
            params,
            slice: None,
            offload: false,
            comments: Vec::new(),
            span: Span::default(),
        });
    }

    fn value(&self, name: &str) -> Option<ModelValue> {
        self.model.values.values().position(|known| known == name).map(ModelValue::new)
    }

    /// The model.
    pub fn finish(self) -> Model {
        self.model
    }
}

/// The dims of letters of named dims, or sizes.
fn dims_of(dims: &Dims, letters: &str) -> Vec<Dim> {
    let mut found = Vec::new();
    for letter in letters.split_whitespace() {
        found.push(match dims.iter().find(|(_, dim)| dim.name == letter) {
            Some((id, _)) => Dim::named(dims, id),
            None => Dim::sized(letter.parse().unwrap_or(0)),
        });
    }
    found
}

/// `y = x w`, or `y = x w + bias`, where the product is `%yw`.
#[derive(Clone, Copy)]
pub struct Linear<'a> {
    /// The name of the result.
    pub y: &'a str,
    /// The operand.
    pub x: &'a str,
    /// The matrix.
    pub w: &'a str,
    /// The bias, if any.
    pub bias: Option<&'a str>,
    /// The dims of the operand behind `b s`, over which it sums.
    pub from: &'a str,
    /// The dims of the result behind `b s`.
    pub to: &'a str,
}

/// The `F` section of a block under construction. Arguments and results go by name.
pub struct Body<'a> {
    builder: Builder<'a>,
    dims: &'a Dims,
}

impl Body<'_> {
    /// Appends a statement; its results take the names, in order.
    ///
    /// # Errors
    /// The op does not accept its operands, or an operand does not exist.
    pub fn op(&mut self, names: &[&str], op: impl Into<Op>, operands: &[&str]) -> Result<(), DraftError> {
        let operands = operands.iter().map(|name| self.value(name)).collect::<Result<Vec<_>, _>>()?;
        let results = self.builder.op(op, &operands)?;
        for (name, value) in names.iter().zip(results) {
            self.builder.block.values[value].name = (*name).to_string();
        }
        Ok(())
    }

    /// `y = f(x)`, element by element.
    ///
    /// # Errors
    /// There is no such operand.
    pub fn unary(&mut self, y: &str, kind: UnaryKind, x: &str) -> Result<(), DraftError> {
        self.op(&[y], Unary(kind), &[x])
    }

    /// `y = 1 / (1 + e^-x)`
    ///
    /// # Errors
    /// There is no such operand.
    pub fn sigmoid(&mut self, y: &str, x: &str) -> Result<(), DraftError> {
        self.unary(y, UnaryKind::Sigmoid, x)
    }

    /// `y = by x`
    ///
    /// # Errors
    /// There is no such operand.
    pub fn scale(&mut self, y: &str, by: f64, x: &str) -> Result<(), DraftError> {
        self.unary(y, UnaryKind::Scale(by), x)
    }

    /// `y`, a tensor of ones of the element type of a value.
    ///
    /// # Errors
    /// There is no such value.
    pub fn ones(&mut self, y: &str, like: &str, letters: &str) -> Result<(), DraftError> {
        self.filled(y, 1.0, like, letters)
    }

    /// `y`, a tensor of one number, of the element type of a value.
    ///
    /// # Errors
    /// There is no such value.
    pub fn filled(&mut self, y: &str, number: f64, like: &str, letters: &str) -> Result<(), DraftError> {
        if number == 0.0 {
            return self.zeros(y, like, letters);
        }
        let zeros = format!("{y}_zeros");
        self.zeros(&zeros, like, letters)?;
        self.unary(y, UnaryKind::Shift(number), &zeros)
    }

    /// `y`, a tensor of zeros of the element type of a value.
    ///
    /// # Errors
    /// There is no such value.
    pub fn zeros(&mut self, y: &str, like: &str, letters: &str) -> Result<(), DraftError> {
        let places = format!("{y}_places");
        let iota = Iota { dim: 0, dims: self.dims(letters), dtype: self.dtype(like)? };
        self.op(&[&places], iota, &[])?;
        self.scale(y, 0.0, &places)
    }

    /// The element type of a value.
    ///
    /// # Errors
    /// There is none.
    pub fn dtype(&self, name: &str) -> Result<DType, DraftError> {
        Ok(self.builder.ty(self.value(name)?).dtype)
    }

    /// A linear map.
    ///
    /// # Errors
    /// There is no such operand.
    pub fn linear(&mut self, map: &Linear<'_>) -> Result<(), DraftError> {
        self.linear_of("b s", map)
    }

    /// Adds a linear map of rows with other dims than `b s`.
    ///
    /// # Errors
    /// There is no such operand.
    pub fn linear_of(&mut self, rows: &str, map: &Linear<'_>) -> Result<(), DraftError> {
        let Linear { y, x, w, bias, from, to } = *map;
        let product = Einsum::new(&format!("{rows} {from}, {from} {to} -> {rows} {to}"))?;
        let Some(bias) = bias else { return self.op(&[y], product, &[x, w]) };
        let unbiased = format!("{y}w");
        self.op(&[&unbiased], product, &[x, w])?;
        let add = Binary::spread(BinaryKind::Add, &format!("{rows} {to}, {to} -> {rows} {to}"))?;
        self.op(&[y], add, &[&unbiased, bias])
    }

    /// The dims of letters.
    pub fn dims(&self, letters: &str) -> Vec<Dim> {
        dims_of(self.dims, letters)
    }

    /// The value of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn value(&self, name: &str) -> Result<Value, DraftError> {
        self.builder.block.find(name).ok_or_else(|| DraftError::NoValue(name.to_string()))
    }
}
