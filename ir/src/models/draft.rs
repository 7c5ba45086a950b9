//! Shared code of the model builders and of imports: a model under construction, whose dims have short names.

use super::config::Batch;
use crate::dim_role::DimRole;
use crate::entity::EntityRef;
use crate::graph::{
    Arg, ArgKind, Block, Call, Init, Model, ModelInput, Param, ParamIndex, ParamRef, Repeat, ResultKind, SectionKind,
    Span,
};
use crate::ids::{BlockId, ModelValue, Value};
use crate::ops::{Binary, BinaryKind, Builder, Einsum, Iota, Op, Unary, UnaryKind};
use crate::types::{DType, Dim, DimName, Dims, Type};
use std::borrow::Cow;
use std::ops::Range;

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
}

impl Weight {
    /// A matrix with normal initial numbers.
    pub fn normal(name: impl Into<Cow<'static, str>>, dims: &str, deviation: f64) -> Weight {
        Weight { name: name.into(), dims: dims.to_string(), init: Init::Normal(deviation), part_of: None }
    }

    /// A gain (1) or a bias (0).
    pub fn constant(name: impl Into<Cow<'static, str>>, dims: &str, value: f64) -> Weight {
        Weight { name: name.into(), dims: dims.to_string(), init: Init::Constant(value), part_of: None }
    }

    /// The same as a part of a matrix, along its last dim.
    #[must_use]
    pub fn part_of(self, whole: &'static str) -> Weight {
        Weight { part_of: Some(whole), ..self }
    }

    /// True for matrices: weight decay applies to them, but not to gains and biases, as in the training of GPT-3 and its
    /// successors.
    fn decay(&self) -> bool {
        matches!(self.init, Init::Normal(_))
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

    /// Declares an input of one integer per token.
    pub fn input(&mut self, name: &str) {
        let value = self.model.values.push(name.to_string());
        let ty = self.ids();
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
            ty: self.ty(&weight.dims),
            init: weight.init,
            decay: weight.decay(),
            frozen: false,
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
        body: impl FnOnce(&mut Body<'_>) -> Result<Vec<Value>, String>,
    ) -> Result<BlockId, String> {
        let mut block = Block { name: name.to_string(), results: results.to_vec(), ..Block::default() };
        let mut add = |name: &str, kind: ArgKind, ty: Type| {
            let value = block.add_value(name, ty);
            block.args.push(Arg { value, kind });
        };
        for (name, kind, ty) in args {
            add(name, *kind, ty.clone());
        }
        for weight in weights {
            add(&weight.name, ArgKind::Param, self.ty(&weight.dims));
        }
        let mut body_of_block = Body { builder: Builder::new(&mut block), dims: &self.model.dims };
        let ret = body(&mut body_of_block)?;
        let stmts = body_of_block.builder.stmts;
        block[SectionKind::F].stmts = stmts;
        block[SectionKind::F].ret = ret;
        Ok(self.model.blocks.push(block))
    }

    /// Calls a block, once for each index of `repeat` where it is given; its result takes the name, unless that is empty.
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
        let results = if result.is_empty() { Vec::new() } else { vec![self.model.values.push(result.to_string())] };
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
    let dim = |letter: &str| {
        let named = dims.iter().find(|(_, dim)| dim.name == letter);
        named.map_or_else(|| Dim::sized(letter.parse().unwrap_or(0)), |(id, _)| Dim::named(dims, id))
    };
    letters.split_whitespace().map(dim).collect()
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
    pub fn op(&mut self, names: &[&str], op: impl Into<Op>, operands: &[&str]) -> Result<(), String> {
        let operands = operands.iter().map(|name| self.value(name)).collect::<Result<Vec<_>, _>>()?;
        let results = self.builder.op(op, &operands)?;
        for (name, value) in names.iter().zip(results) {
            self.builder.block.values[value].name = (*name).to_string();
        }
        Ok(())
    }

    /// `y = 1 / (1 + e^-x)`
    ///
    /// # Errors
    /// There is no such operand.
    pub fn sigmoid(&mut self, y: &str, x: &str) -> Result<(), String> {
        self.op(&[y], Unary(UnaryKind::Sigmoid), &[x])
    }

    /// `y = by x`
    ///
    /// # Errors
    /// There is no such operand.
    pub fn scale(&mut self, y: &str, by: f64, x: &str) -> Result<(), String> {
        self.op(&[y], Unary(UnaryKind::Scale(by)), &[x])
    }

    /// `y`, a vector of ones of the element type of a value.
    ///
    /// # Errors
    /// There is no such value.
    pub fn ones(&mut self, y: &str, like: &str, letter: &str) -> Result<(), String> {
        let [places, zeros] = ["places", "zeros"].map(|suffix| format!("{y}_{suffix}"));
        let iota = Iota { dim: 0, dims: self.dims(letter), dtype: self.dtype(like)? };
        self.op(&[&places], iota, &[])?;
        self.scale(&zeros, 0.0, &places)?;
        self.op(&[y], Unary(UnaryKind::Shift(1.0)), &[&zeros])
    }

    /// The element type of a value.
    ///
    /// # Errors
    /// There is none.
    pub fn dtype(&self, name: &str) -> Result<DType, String> {
        Ok(self.builder.ty(self.value(name)?).dtype)
    }

    /// `y = x w`, or `y = x w + bias`, where the product is `%yw`; `dims` are those of x, w and y behind `b s`.
    ///
    /// # Errors
    /// There is no such operand.
    pub fn linear(
        &mut self,
        [y, x, w]: [&str; 3],
        bias: Option<&str>,
        [from, matrix, to]: [&str; 3],
    ) -> Result<(), String> {
        let product = Einsum::new(&format!("b s {from}, {matrix} -> b s {to}"))?;
        let Some(bias) = bias else { return self.op(&[y], product, &[x, w]) };
        let unbiased = format!("{y}w");
        self.op(&[&unbiased], product, &[x, w])?;
        let add = Binary::spread(BinaryKind::Add, &format!("b s {to}, {to} -> b s {to}"))?;
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
    pub fn value(&self, name: &str) -> Result<Value, String> {
        self.builder.block.find(name).ok_or_else(|| format!("there is no `%{name}`"))
    }
}
