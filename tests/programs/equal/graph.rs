//! Random blocks: a current tensor is carried through random ops, and ends in the shape that the block must give.
//!
//! Every dim of the current tensor has a letter of its own, so that equations can be made for any shape.

use crate::random::Random;
use ir::graph::{Arg, ArgKind, Block, ResultKind, SectionKind};
use ir::ids::Value;
use ir::ops::{
    Attention, AttentionSettings, Binary, BinaryKind, Broadcast, Builder, Combine, Concat, CrossEntropy, Dispatch,
    Dropout, Einsum, Embedding, Equation, GroupLimit, LayerNorm, Pad, Permute, Reduce, Reshape, RmsNorm, Rope, Scaling,
    Slice, Softmax, TopK, Unary, UnaryKind,
};
use ir::types::{DType, Dim, PartialKind, Type};

/// The sizes that all blocks of a case share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: u64,
    pub(crate) seq: u64,
    pub(crate) hidden: u64,
    pub(crate) vocab: u64,
    /// The type of parameters and of what blocks pass.
    pub(crate) dtype: DType,
    /// Sequences are to be run in slices: they stay dim 1, no op mixes their places, and attention is causal.
    pub(crate) in_slices: bool,
}

/// A tensor with a letter for each dim.
#[derive(Clone)]
struct Current {
    value: Value,
    dims: Vec<(String, u64)>,
}

impl Current {
    fn letters(&self) -> String {
        self.dims.iter().map(|(letter, _)| letter.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// A parameter that a block takes.
pub(crate) struct MadeParam {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// How many of its elements add up in one result: the scale of its first numbers.
    pub(crate) fan_in: u64,
}

/// A block in the making.
pub(crate) struct BlockMaker<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) sizes: Sizes,
    builder: Builder<'a>,
    args: Vec<Arg>,
    params: Vec<MadeParam>,
    letters: usize,
    name: String,
}

type Made<T> = Result<T, String>;

impl<'a> BlockMaker<'a> {
    pub(crate) fn new(random: &'a mut Random, sizes: Sizes, block: &'a mut Block, name: &str) -> BlockMaker<'a> {
        block.name = name.to_string();
        let builder = Builder::new(block);
        BlockMaker { random, sizes, builder, args: Vec::new(), params: Vec::new(), letters: 0, name: name.to_string() }
    }

    pub(crate) fn input(&mut self, name: &str) -> Value {
        let ty = Type::of(DType::I32, &[self.sizes.batch, self.sizes.seq]);
        self.arg(name, ty, ArgKind::Input)
    }

    pub(crate) fn residual(&mut self, name: &str) -> Value {
        let ty = Type::of(self.sizes.dtype, &[self.sizes.batch, self.sizes.seq, self.sizes.hidden]);
        self.arg(name, ty, ArgKind::Value)
    }

    fn arg(&mut self, name: &str, ty: Type, kind: ArgKind) -> Value {
        let value = self.builder.block.add_value(name, ty);
        self.args.push(Arg { value, kind });
        value
    }

    /// A parameter of these sizes under a fresh name, or under the given one.
    pub(crate) fn param(&mut self, name: Option<&str>, sizes: &[u64], fan_in: u64) -> Value {
        let name = name.map_or_else(|| format!("w{}", self.params.len()), str::to_string);
        let ty = Type::of(self.sizes.dtype, sizes);
        self.params.push(MadeParam { name: name.clone(), ty: ty.clone(), fan_in });
        self.arg(&name, ty, ArgKind::Param)
    }

    /// Ends the block; gives the parameters that it takes.
    pub(crate) fn finish(mut self, results: Vec<(Value, ResultKind)>) -> Vec<MadeParam> {
        // Values and inputs are before parameters.
        self.args.sort_by_key(|arg| arg.kind == ArgKind::Param);
        let stmts = std::mem::take(&mut self.builder.stmts);
        let block = self.builder.block;
        block.args = self.args;
        block.results = results.iter().map(|(_, kind)| *kind).collect();
        block[SectionKind::F].stmts = stmts;
        block[SectionKind::F].ret = results.into_iter().map(|(value, _)| value).collect();
        self.params
    }

    pub(crate) fn embed(&mut self, ids: Value, table: Value) -> Made<Value> {
        self.builder.one(Embedding::default(), &[ids, table])
    }

    /// Carries a `[b, s, h]` tensor through about `count` random steps and back to `[b, s, h]`.
    pub(crate) fn mix(&mut self, x: Value, pos: Value, seg: Value, count: usize) -> Made<Value> {
        let mut current = self.residual_dims(x);
        let mut shelf = vec![current.clone()];
        for _ in 0..count {
            current = self.step(&current, &shelf, pos, seg)?;
            shelf.push(current.clone());
        }
        self.back_to_residual(&current)
    }

    fn residual_dims(&mut self, value: Value) -> Current {
        let Sizes { batch, seq, hidden, .. } = self.sizes;
        let dims = [batch, seq, hidden].map(|size| (self.letter(), size)).to_vec();
        Current { value, dims }
    }

    fn letter(&mut self) -> String {
        self.letters += 1;
        format!("l{}", self.letters)
    }

    fn step(&mut self, x: &Current, shelf: &[Current], pos: Value, seg: Value) -> Made<Current> {
        let kind = if self.sizes.in_slices {
            *self.random.pick(&[0, 5, 6, 11, 14, 15, 19, 19])
        } else {
            self.random.below(20)
        };
        match kind {
            0 | 1 => self.unary(x),
            2 | 3 => self.linear(x),
            4 => self.bias(x),
            5 => self.gate(x),
            6 => self.residual_add(x, shelf),
            7 => self.reduce_and_spread(x),
            8 => self.permute(x),
            9 | 17 | 18 => self.reshape(x),
            10 => self.cut(x),
            11 => self.norm(x),
            12 => Ok(Current { value: self.builder.one(Softmax, &[x.value])?, dims: x.dims.clone() }),
            13 => self.gram(x),
            14 => self.dropout(x),
            15 => self.rope(x, pos),
            16 => self.experts(x),
            _ => self.attention(x, pos, seg),
        }
    }

    fn one(&mut self, kind: UnaryKind, value: Value) -> Made<Value> {
        self.builder.one(Unary(kind), &[value])
    }

    fn two(&mut self, kind: BinaryKind, a: Value, b: Value) -> Made<Value> {
        self.builder.one(Binary::of(kind), &[a, b])
    }

    /// `x^2 + 1/2`: something positive to divide by or take the root of.
    fn positive(&mut self, value: Value) -> Made<Value> {
        let square = self.one(UnaryKind::Square, value)?;
        self.one(UnaryKind::Shift(0.5), square)
    }

    fn unary(&mut self, x: &Current) -> Made<Current> {
        let value = match self.random.below(12) {
            11 => self.one(UnaryKind::ReluSquared, x.value)?,
            0 => self.one(UnaryKind::Silu, x.value)?,
            1 => self.one(UnaryKind::Gelu, x.value)?,
            2 => self.one(UnaryKind::GeluErf, x.value)?,
            3 => self.one(UnaryKind::Neg, x.value)?,
            4 => self.one(UnaryKind::Scale(0.75), x.value)?,
            5 => {
                let small = self.one(UnaryKind::Scale(0.125), x.value)?;
                self.one(UnaryKind::Exp, small)?
            }
            6 => {
                let positive = self.positive(x.value)?;
                self.one(UnaryKind::Log, positive)?
            }
            7 => {
                let positive = self.positive(x.value)?;
                self.one(UnaryKind::Sqrt, positive)?
            }
            8 => {
                let positive = self.positive(x.value)?;
                self.one(UnaryKind::Rsqrt, positive)?
            }
            9 => {
                let positive = self.positive(x.value)?;
                self.one(UnaryKind::Recip, positive)?
            }
            _ => {
                let positive = self.positive(x.value)?;
                self.two(BinaryKind::Div, x.value, positive)?
            }
        };
        Ok(Current { value, dims: x.dims.clone() })
    }

    /// Contracts a dim other than the first with a parameter.
    fn linear(&mut self, x: &Current) -> Made<Current> {
        let place = 1 + self.random.below(x.dims.len() - 1);
        let (width, letter) = (self.random.between(2, 6), self.letter());
        let w = self.param(None, &[x.dims[place].1, width], x.dims[place].1);
        self.contract(x, place, w, &letter, width)
    }

    fn contract(&mut self, x: &Current, place: usize, w: Value, letter: &str, width: u64) -> Made<Current> {
        let mut dims = x.dims.clone();
        dims[place] = (letter.to_string(), width);
        let result = Current { value: x.value, dims: dims.clone() };
        let eq = format!("{}, {} {letter} -> {}", x.letters(), x.dims[place].0, result.letters());
        Ok(Current { value: self.builder.one(Einsum::new(&eq)?, &[x.value, w])?, dims })
    }

    fn bias(&mut self, x: &Current) -> Made<Current> {
        let from = 1 + self.random.below(x.dims.len() - 1);
        let tail = &x.dims[from..];
        let w = self.param(None, &tail.iter().map(|(_, size)| *size).collect::<Vec<_>>(), 1);
        let kind = *self.random.pick(&[BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul]);
        let tail: Vec<&str> = tail.iter().map(|(letter, _)| letter.as_str()).collect();
        let eq = format!("{}, {} -> {}", x.letters(), tail.join(" "), x.letters());
        Ok(Current { value: self.builder.one(Binary::spread(kind, &eq)?, &[x.value, w])?, dims: x.dims.clone() })
    }

    /// `silu(x a) * (x b)`.
    fn gate(&mut self, x: &Current) -> Made<Current> {
        let place = x.dims.len() - 1;
        let (width, letter) = (self.random.between(2, 8), self.letter());
        let depth = x.dims[place].1;
        let [a, b] = [(); 2].map(|()| self.param(None, &[depth, width], depth));
        let gate = self.contract(x, place, a, &letter, width)?;
        let up = self.contract(x, place, b, &letter, width)?;
        let active = self.one(UnaryKind::Silu, gate.value)?;
        Ok(Current { value: self.two(BinaryKind::Mul, active, up.value)?, dims: up.dims })
    }

    fn residual_add(&mut self, x: &Current, shelf: &[Current]) -> Made<Current> {
        let sizes = |c: &Current| c.dims.iter().map(|(_, size)| *size).collect::<Vec<_>>();
        let like: Vec<&Current> = shelf.iter().filter(|other| sizes(other) == sizes(x)).collect();
        let other = self.random.pick(&like).value;
        let kind = *self.random.pick(&[BinaryKind::Add, BinaryKind::Sub]);
        Ok(Current { value: self.two(kind, x.value, other)?, dims: x.dims.clone() })
    }

    /// Sums over some dims; spreads the scaled sum back by `broadcast` or within the op.
    fn reduce_and_spread(&mut self, x: &Current) -> Made<Current> {
        let gone = self.random.below(x.dims.len());
        let kept: Vec<&str> =
            x.dims.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, (letter, _))| letter.as_str()).collect();
        let eq = format!("{} -> {}", x.letters(), kept.join(" "));
        let sum = self.builder.one(Reduce::new(PartialKind::Sum, &eq)?, &[x.value])?;
        let mean = self.one(UnaryKind::Scale(1.0 / x.dims[gone].1 as f64), sum)?;
        let value = if self.random.chance(50) {
            let equation = Equation::parse(&format!("{} -> {}", kept.join(" "), x.letters()))?;
            let free = vec![Dim::sized(x.dims[gone].1)];
            let wide = self.builder.one(Broadcast { equation, free }, &[mean])?;
            self.two(BinaryKind::Sub, x.value, wide)?
        } else {
            let eq = format!("{}, {} -> {}", x.letters(), kept.join(" "), x.letters());
            self.builder.one(Binary::spread(BinaryKind::Mul, &eq)?, &[x.value, mean])?
        };
        Ok(Current { value, dims: x.dims.clone() })
    }

    fn permute(&mut self, x: &Current) -> Made<Current> {
        let mut dims = x.dims.clone();
        for place in (1..dims.len()).rev() {
            let other = self.random.below(place + 1);
            dims.swap(place, other);
        }
        let result = Current { value: x.value, dims: dims.clone() };
        let eq = format!("{} -> {}", x.letters(), result.letters());
        Ok(Current { value: self.builder.one(Permute::new(&eq)?, &[x.value])?, dims })
    }

    /// Merges two neighbours, or splits a dim.
    fn reshape(&mut self, x: &Current) -> Made<Current> {
        let mut dims = x.dims.clone();
        let splittable: Vec<usize> =
            (0..dims.len()).filter(|&i| dims[i].1.is_multiple_of(2) && dims[i].1 > 2).collect();
        if dims.len() > 2 && (self.random.chance(50) || splittable.is_empty()) {
            let place = self.random.below(dims.len() - 1);
            let (letter, size) = (self.letter(), dims[place].1 * dims[place + 1].1);
            dims.splice(place..place + 2, [(letter, size)]);
        } else if let Some(&place) = splittable.first() {
            let outer = if self.random.chance(50) { 2 } else { dims[place].1 / 2 };
            let (a, b, size) = (self.letter(), self.letter(), dims[place].1);
            dims.splice(place..=place, [(a, outer), (b, size / outer)]);
        } else {
            return self.unary(x);
        }
        let sizes = dims.iter().map(|(_, size)| Dim::sized(*size)).collect();
        Ok(Current { value: self.builder.one(Reshape { dims: sizes }, &[x.value])?, dims })
    }

    /// Slices a dim; then pads it back, or joins it with itself.
    fn cut(&mut self, x: &Current) -> Made<Current> {
        let place = self.random.below(x.dims.len());
        let size = x.dims[place].1;
        if size < 2 {
            return self.unary(x);
        }
        let length = self.random.between(1, size - 1);
        let start = self.random.between(0, size - length);
        let part = self.builder.one(Slice { dim: place, start, length }, &[x.value])?;
        let value = if self.random.chance(50) {
            let pad = Pad { dim: place, before: start, after: size - start - length };
            self.builder.one(pad, &[part])?
        } else {
            let rest = Slice { dim: place, start: 0, length: size - length };
            let rest = self.builder.one(rest, &[x.value])?;
            self.builder.one(Concat { dim: place }, &[part, rest])?
        };
        Ok(Current { value, dims: x.dims.clone() })
    }

    /// Sends the rows of the last dim to experts, each a matrix, and brings them back.
    fn experts(&mut self, x: &Current) -> Made<Current> {
        let [.., tokens, last] = x.dims.as_slice() else { return self.unary(x) };
        let (tokens, depth) = (tokens.1, last.1);
        let (count, width) = (self.random.between(2, 4), self.random.between(2, 6));
        let capacity = Dim::sized(self.random.between(1, tokens));
        let [router, kind, place, letter] = [(); 4].map(|()| self.letter());
        let w = self.param(None, &[depth, count], depth);
        let logits = self.contract(x, x.dims.len() - 1, w, &router, count)?;
        let scores = self.builder.one(Softmax, &[logits.value])?;
        let mut operands = vec![scores];
        if self.random.chance(25) {
            operands.push(self.param(None, &[count], 4));
        }
        let limit = (count == 4 && self.random.chance(50)).then_some(GroupLimit { groups: 2, from: 1, by: 2 });
        let [weights, index] = self.builder.op(TopK { k: self.random.between(1, 2), limit }, &operands)?[..] else {
            return Err("top_k has two results".to_string());
        };
        let sent = [x.value, index, weights];
        let sent = if self.random.chance(30) { &sent[..] } else { &sent[..2] };
        let experts = Dim::sized(count);
        let rows = self.builder.op(Dispatch { experts, capacity }, sent)?[0];
        let groups: Vec<&str> = x.dims[..x.dims.len() - 2].iter().map(|(letter, _)| letter.as_str()).collect();
        let (groups, depth_letter) = (groups.join(" "), &last.0);
        let w = self.param(None, &[count, depth, width], depth);
        let eq = format!(
            "{groups} {kind} {place} {depth_letter}, {kind} {depth_letter} {letter} -> {groups} {kind} {place} {letter}"
        );
        let made = self.builder.one(Einsum::new(&eq)?, &[rows, w])?;
        let value = self.builder.one(Combine, &[made, index, weights])?;
        let mut dims = x.dims.clone();
        dims[x.dims.len() - 1] = (letter, width);
        Ok(Current { value, dims })
    }

    fn norm(&mut self, x: &Current) -> Made<Current> {
        let width = x.dims.last().map_or(1, |(_, size)| *size);
        let gamma = self.param(None, &[width], 1);
        let value = if self.random.chance(50) {
            self.builder.op(RmsNorm { eps: 1e-3 }, &[x.value, gamma])?[0]
        } else {
            let beta = self.param(None, &[width], 1);
            self.builder.op(LayerNorm { eps: 1e-3 }, &[x.value, gamma, beta])?[0]
        };
        Ok(Current { value, dims: x.dims.clone() })
    }

    /// Contracts the tensor with a function of itself over one dim: both operands are activations.
    fn gram(&mut self, x: &Current) -> Made<Current> {
        if x.dims.len() != 3 {
            return self.unary(x);
        }
        let other = self.one(UnaryKind::Silu, x.value)?;
        let (b, s, h, t) = (&x.dims[0].0, &x.dims[1].0, &x.dims[2].0, self.letter());
        let eq = format!("{b} {s} {h}, {b} {t} {h} -> {b} {s} {t}");
        let value = self.builder.one(Einsum::new(&eq)?, &[x.value, other])?;
        let value = self.one(UnaryKind::Scale(1.0 / x.dims[2].1 as f64), value)?;
        Ok(Current { value, dims: vec![x.dims[0].clone(), x.dims[1].clone(), (t, x.dims[1].1)] })
    }

    fn dropout(&mut self, x: &Current) -> Made<Current> {
        let letter = self.letter();
        let path = format!("{}.{letter}", self.name);
        Ok(Current {
            value: self.builder.one(Dropout { p: 0.25, path, piece: None }, &[x.value])?,
            dims: x.dims.clone(),
        })
    }

    /// Brings the tensor to `[b, s, n, d]` with an even d and turns it.
    fn rope(&mut self, x: &Current, pos: Value) -> Made<Current> {
        let x = self.back_to_residual(x)?;
        let x = self.residual_dims(x);
        let (heads, half) = (self.random.between(1, 3), self.random.between(1, 2));
        let heads = self.project(&x, &[heads, 2 * half])?;
        // Of two pairs, one is kept and one is between.
        let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 100 };
        let turned = self.random.chance(30).then_some(2);
        let pairs = turned.map_or(half as usize, |_| 1);
        // Positions stand for the lengths of sequences.
        let lengths = Scaling::Lengths { short: vec![1.5; pairs].into(), long: vec![4.0; pairs].into(), context: 2 };
        let scalings = [None, Some(Scaling::Linear { factor: 2.0 }), Some(llama3), Some(lengths)];
        let scaling = self.random.pick(&scalings).clone();
        let gain = if turned.is_some() { 1.25 } else { 1.0 };
        let operands = [heads.value, pos, pos];
        let count = 2 + usize::from(scaling.as_ref().is_some_and(Scaling::reads_lengths));
        let rope = Rope { theta: 100.0, scaling, turned, gain, inverse: false };
        let value = self.builder.one(rope, &operands[..count])?;
        Ok(Current { value, ..heads })
    }

    fn attention(&mut self, x: &Current, pos: Value, seg: Value) -> Made<Current> {
        let x = self.back_to_residual(x)?;
        let x = self.residual_dims(x);
        let [g, r, d, c] = [(1, 4), (1, 3), (1, 3), (1, 3)].map(|(low, high)| self.random.between(low, high));
        let q = self.project(&x, &[g, r, d])?;
        let (k, v) = (self.project(&x, &[g, d])?, self.project(&x, &[g, c])?);
        let letter = self.letter();
        let path = format!("{}.{letter}", self.name);
        let dropout = self.random.chance(33).then_some(Dropout { p: 0.25, path, piece: None });
        let causal = self.random.chance(70) || self.sizes.in_slices;
        let window = (causal && self.random.chance(20)).then(|| self.random.between(1, 6));
        let softcap = self.random.chance(20).then_some(3.0);
        let settings = AttentionSettings::new(1.0 / (d as f64).sqrt(), causal);
        // An even window is a chunk.
        let (chunk, window) = (window.filter(|n| n.is_multiple_of(2)), window.filter(|n| !n.is_multiple_of(2)));
        let op = Attention(AttentionSettings { window, chunk, softcap, dropout, ..settings });
        let mut operands = vec![q.value, k.value, v.value, pos, pos, seg, seg];
        if self.random.chance(30) {
            operands.push(self.param(None, &[q.dims[2].1, q.dims[3].1], 1));
        }
        let out = self.builder.op(op, &operands)?[0];
        let mut dims = q.dims;
        dims[4].1 = c;
        Ok(Current { value: out, dims })
    }

    /// `[b, s, h]` times a parameter `[h, sizes..]`.
    fn project(&mut self, x: &Current, sizes: &[u64]) -> Made<Current> {
        let mut shape = vec![x.dims[2].1];
        shape.extend(sizes);
        let w = self.param(None, &shape, x.dims[2].1);
        let new: Vec<(String, u64)> = sizes.iter().map(|&size| (self.letter(), size)).collect();
        let dims: Vec<_> = x.dims[..2].iter().cloned().chain(new.clone()).collect();
        let letters = |dims: &[(String, u64)]| dims.iter().map(|(l, _)| l.clone()).collect::<Vec<_>>().join(" ");
        let eq = format!("{}, {} {} -> {}", x.letters(), x.dims[2].0, letters(&new), letters(&dims));
        Ok(Current { value: self.builder.one(Einsum::new(&eq)?, &[x.value, w])?, dims })
    }

    /// Any shape to `[b, s, h]`: where it is not, all dims are contracted with a parameter but one of the batch's size.
    fn back_to_residual(&mut self, x: &Current) -> Made<Value> {
        let Sizes { batch, seq, hidden, .. } = self.sizes;
        let sizes: Vec<u64> = x.dims.iter().map(|(_, size)| *size).collect();
        if sizes == [batch, seq, hidden] {
            return Ok(x.value);
        }
        if self.sizes.in_slices {
            return self.rows_to_residual(x);
        }
        let (s, h, b) = (self.letter(), self.letter(), self.letter());
        let mut shape = sizes;
        shape.extend([batch, seq, hidden]);
        let keep = x.dims.iter().position(|(_, size)| *size == batch);
        let (mut left, mut first) = (x.letters(), b.clone());
        if let Some(place) = keep {
            shape.truncate(x.dims.len());
            shape.remove(place);
            shape.extend([seq, hidden]);
            left = x
                .dims
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != place)
                .map(|(_, (l, _))| l.clone())
                .collect::<Vec<_>>()
                .join(" ");
            first = x.dims[place].0.clone();
        } else {
            left = format!("{left} {b}");
        }
        let contracted = x.dims.iter().map(|(_, size)| size).product::<u64>() / keep.map_or(1, |place| x.dims[place].1);
        let w = self.param(None, &shape, contracted);
        let eq = format!("{}, {left} {s} {h} -> {first} {s} {h}", x.letters());
        self.builder.one(Einsum::new(&eq)?, &[x.value, w])
    }

    /// `[b, s, *n]` to `[b, s, h]`: all dims but these two are contracted with a parameter.
    fn rows_to_residual(&mut self, x: &Current) -> Made<Value> {
        let rest = Current { value: x.value, dims: x.dims[2..].to_vec() };
        let mut shape: Vec<u64> = rest.dims.iter().map(|(_, size)| *size).collect();
        let contracted = shape.iter().product();
        shape.push(self.sizes.hidden);
        let (w, h) = (self.param(None, &shape, contracted), self.letter());
        let (b, s) = (&x.dims[0].0, &x.dims[1].0);
        let eq = format!("{}, {} {h} -> {b} {s} {h}", x.letters(), rest.letters());
        self.builder.one(Einsum::new(&eq)?, &[x.value, w])
    }

    /// The sum of two residual tensors.
    pub(crate) fn join(&mut self, a: Value, b: Value) -> Made<Value> {
        self.two(BinaryKind::Add, a, b)
    }

    /// The loss: cross-entropy over a vocabulary, or a sum of squares.
    pub(crate) fn loss(&mut self, x: Value, labels: Value, table: Option<Value>) -> Made<Value> {
        if table.is_none() && self.random.chance(25) {
            let mut square = self.one(UnaryKind::Square, x)?;
            if self.sizes.dtype != DType::F32 {
                square = self.one(UnaryKind::Cast(DType::F32), square)?;
            }
            return self.builder.one(Reduce::new(PartialKind::Sum, "b s h -> ()")?, &[square]);
        }
        let (w, eq) = match table {
            Some(table) => (table, "b s h, v h -> b s v"),
            None => {
                (self.param(None, &[self.sizes.hidden, self.sizes.vocab], self.sizes.hidden), "b s h, h v -> b s v")
            }
        };
        let logits = self.builder.one(Einsum::new(eq)?, &[x, w])?;
        Ok(self.builder.op(CrossEntropy, &[logits, labels])?[0])
    }
}
