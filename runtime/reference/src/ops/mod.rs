//! Definition of each op: one match arm per op, which calls the function with the definition.

mod attention;
mod dense;
mod elementwise;
mod experts;
mod norm;
mod quantise;
mod scan;
mod select;
mod short_conv;
mod sparse;
mod token;
mod update;

use super::real::Real;
use super::round::Within;
use super::tensor::{Array, Tensor};
use attention::{AttentionInputs, Dropped};
use ir::ops::{
    AttentionSettings, Collective, CompositeOp, Einsum, KernelOp, Op, OpResult, Scaling, ScanKind, ScanSettings,
};
use ir::types::DType;
use scan::ScanInputs;
use short_conv::ShortConv;
use sparse::{Indexer, Places, SparseAttention};

/// Position of a statement in a run, on which random numbers depend, and its rounding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// The seed of the run.
    pub seed: u64,
    /// The step, from 1.
    pub step: u64,
    /// The repeat's variable of the run of the block; 0 outside a repeat.
    pub index: u64,
    /// The micro-batch within the step, from 0.
    pub microbatch: u64,
    /// How numbers within the op are rounded: only attention has any.
    pub within: Within,
}

/// The results of an op. `dims` are the sizes of each result as the op infers them from the operands' types, which must
/// have been done before: sizes are not checked again. Reshards give their operands, but for shifts, which turn them.
///
/// # Errors
/// An operand has integers for floats, or floats for integers.
pub fn evaluate<R: Real>(
    op: &Op,
    operands: &[&Array<R>],
    dims: &[Vec<usize>],
    context: Context,
) -> Result<Vec<Array<R>>, String> {
    let results = match op {
        Op::Kernel(op) => match routed(op, Operands(operands), dims)? {
            Some(results) => return Ok(results),
            None => kernel(op, Operands(operands), dims, context)?,
        },
        Op::Collective(Collective::Shift { dim, by, .. }) => {
            return Ok(operands.iter().map(|&operand| dense::rolled(operand, *dim, *by as usize)).collect());
        }
        Op::Collective(change) => {
            return Ok(change.moved(operands).iter().map(|&operand| operand.clone()).collect());
        }
        Op::Reshard => return Ok(operands.iter().map(|&operand| operand.clone()).collect()),
    };
    Ok(results.into_iter().map(Array::Real).collect())
}

/// The operands of a statement by place and sort.
#[derive(Clone, Copy)]
struct Operands<'a, R>(&'a [&'a Array<R>]);

impl<'a, R: Real> Operands<'a, R> {
    fn real(self, place: usize) -> Result<&'a Tensor<R>, String> {
        self.0[place].real()
    }

    fn int(self, place: usize) -> Result<&'a Tensor<i32>, String> {
        self.0[place].int()
    }

    /// Floats that may be left out.
    fn optional(self, place: usize) -> Result<Option<&'a Tensor<R>>, String> {
        self.0.get(place).map(|array| array.real()).transpose()
    }

    fn reals(self) -> Result<Vec<&'a Tensor<R>>, String> {
        self.0.iter().map(|array| array.real()).collect()
    }

    fn ints(self) -> OpResult<Vec<&'a Tensor<i32>>> {
        self.0.iter().map(|array| array.int()).collect()
    }

    /// q, k, v, .., then positions and segments of queries and keys, and a sink, if any, as attention has them.
    fn attention(self, settings: &'a AttentionSettings, context: Context) -> Result<AttentionInputs<'a, R>, String> {
        let ints = self.0.iter().position(|array| array.int().is_ok()).unwrap_or(3);
        let [q, k, v] = [self.real(0)?, self.real(1)?, self.real(2)?];
        let [qpos, kpos, qseg, kseg] = [self.int(ints)?, self.int(ints + 1)?, self.int(ints + 2)?, self.int(ints + 3)?];
        let (sink, dropout) = (self.optional(ints + 4)?, Dropped::of(settings, context));
        let within = context.within;
        Ok(AttentionInputs { q, k, v, qpos, kpos, qseg, kseg, sink, settings, dropout, within })
    }

    fn scan(self, settings: &'a ScanSettings) -> OpResult<ScanInputs<'a, R>> {
        let [q, k, v, decay] = [self.real(0)?, self.real(1)?, self.real(2)?, self.real(3)?];
        let further = if settings.kind == ScanKind::Linear { None } else { Some(self.real(4)?) };
        let at = 4 + usize::from(further.is_some());
        let start = if settings.block.is_some() { Some(self.real(at + 1)?) } else { None };
        Ok(ScanInputs { settings, q, k, v, decay, further, pos: self.int(at)?, start })
    }

    /// The operands of a scan by blocks alone: without queries, or without values, for which the gradient by the results stands.
    fn scan_of_blocks(self, settings: &'a ScanSettings, dout: Option<&'a Tensor<R>>) -> OpResult<ScanInputs<'a, R>> {
        let [first, second, decay] = [self.real(0)?, self.real(1)?, self.real(2)?];
        let (q, k, v) = match dout {
            None => (first, first, second),
            Some(dout) => (first, second, dout),
        };
        let further = if settings.kind == ScanKind::Linear { None } else { Some(self.real(3)?) };
        let pos = self.int(3 + usize::from(further.is_some()))?;
        Ok(ScanInputs { settings, q, k, v, decay, further, pos, start: None })
    }

    fn short_conv(self, block: Option<u64>, taps: usize) -> OpResult<ShortConv<'a>> {
        Ok(ShortConv { dims: &self.real(0)?.dims, taps, pos: self.int(2)?, block })
    }
}

/// Ops that move elements of any type.
fn moved<T: Copy + Default>(op: &KernelOp, x: &Tensor<T>, dims: &[Vec<usize>]) -> Option<Tensor<T>> {
    Some(match op {
        KernelOp::Broadcast(op) => dense::rearrange(&op.equation, x, &dims[0]),
        KernelOp::Permute(op) => dense::rearrange(&op.equation, x, &dims[0]),
        KernelOp::Reshape(_) => dense::reshape(x, &dims[0]),
        KernelOp::Slice(op) => dense::slice(x, op.dim, op.start as usize, &dims[0]),
        KernelOp::Pad(op) => dense::pad(x, op.dim, op.before as usize, &dims[0]),
        _ => return None,
    })
}

/// Ops that move elements of any type, and ops with integers among their operands or results.
fn routed<R: Real>(op: &KernelOp, o: Operands<'_, R>, dims: &[Vec<usize>]) -> Result<Option<Vec<Array<R>>>, String> {
    let moved = match o.0.first() {
        Some(Array::Real(x)) => moved(op, x, dims).map(Array::Real),
        Some(Array::Int(x)) => moved(op, x, dims).map(Array::Int),
        None => None,
    };
    if moved.is_some() {
        return Ok(moved.map(|moved| vec![moved]));
    }
    Ok(Some(match op {
        KernelOp::Iota(iota) => {
            let index = select::iota(iota.dim, &dims[0]);
            vec![if iota.dtype == DType::I32 { Array::Int(index) } else { floats(&index) }]
        }
        KernelOp::Concat(op) if o.int(0).is_ok() => vec![Array::Int(dense::concat(&o.ints()?, op.dim, &dims[0]))],
        KernelOp::Unary(_) if o.int(0).is_ok() => vec![floats(o.int(0)?)],
        KernelOp::Compare(op) => vec![Array::Int(select::compare(op.0, o.0[0], o.0[1])?)],
        KernelOp::TopK(op) => {
            let (values, index) = experts::top_k(op, o.real(0)?, o.optional(1)?, &dims[0]);
            vec![Array::Real(values), Array::Int(index)]
        }
        KernelOp::SelectKeys(_) => {
            let [qpos, kpos, qseg, kseg] = [o.int(3)?, o.int(4)?, o.int(5)?, o.int(6)?];
            let indexer = Indexer { q: o.real(0)?, k: o.real(1)?, w: o.real(2)? };
            vec![Array::Int(indexer.select(&Places { qpos, kpos, qseg, kseg }, &dims[0]))]
        }
        KernelOp::Dispatch(_) => {
            let (rows, counts) = experts::dispatch(o.real(0)?, o.int(1)?, o.optional(2)?, dims);
            vec![Array::Real(rows), Array::Int(counts)]
        }
        _ => return Ok(None),
    }))
}

fn floats<R: Real>(x: &Tensor<i32>) -> Array<R> {
    Array::Real(x.map(|x| R::of(f64::from(x))))
}

fn kernel<'a, R: Real>(
    op: &'a KernelOp,
    o: Operands<'a, R>,
    dims: &[Vec<usize>],
    context: Context,
) -> Result<Vec<Tensor<R>>, String> {
    Ok(match op {
        KernelOp::Einsum(op) if op.scaled.is_some() => {
            let [x, y] = [quantise::times(o.real(0)?, o.real(2)?), quantise::times(o.real(1)?, o.real(3)?)];
            vec![dense::einsum(&op.equation, &[&x, &y], &dims[0])]
        }
        KernelOp::Einsum(Einsum { equation, ragged: Some(ragged), .. }) => {
            let x = experts::filled(o.real(0)?, o.int(2)?, ragged.rows);
            vec![dense::einsum(equation, &[&x, o.real(1)?], &dims[0])]
        }
        KernelOp::Einsum(op) => vec![dense::einsum(&op.equation, &o.reals()?, &dims[0])],
        KernelOp::Unary(op) => vec![elementwise::unary(op.0, o.real(0)?)],
        KernelOp::Binary(op) => vec![elementwise::binary(op, o.real(0)?, o.real(1)?, &dims[0])],
        KernelOp::Reduce(op) => vec![dense::reduce(op.kind, &op.equation, o.real(0)?, &dims[0])],
        KernelOp::Concat(op) => vec![dense::concat(&o.reals()?, op.dim, &dims[0])],
        KernelOp::Reverse(op) => vec![select::reverse(o.real(0)?, op.dim)],
        KernelOp::Windows(op) => vec![select::windows(o.real(0)?, op.frame, &dims[0])],
        KernelOp::Fold(op) => vec![select::fold(o.real(0)?, op.frame, &dims[0])],
        KernelOp::Take(op) => vec![select::take(o.real(0)?, o.int(1)?, op.at, &dims[0])],
        KernelOp::ScatterAdd(op) => vec![select::scatter_add(o.real(0)?, o.int(1)?, op.at, &dims[0])],
        KernelOp::DynamicSlice(op) => {
            let (x, start) = (o.real(0)?, o.int(1)?.data[0]);
            vec![dense::slice(x, op.dim, select::begin(start, dims[0][op.dim], x.dims[op.dim]), &dims[0])]
        }
        KernelOp::DynamicPad(op) => {
            let (y, start) = (o.real(0)?, o.int(1)?.data[0]);
            vec![dense::pad(y, op.dim, select::begin(start, y.dims[op.dim], dims[0][op.dim]), &dims[0])]
        }
        KernelOp::Select(op) => vec![select::select(o.int(0)?, op.not, o.real(1)?, o.optional(2)?)],
        KernelOp::RmsNorm(op) => norm::rms_norm(o.real(0)?, o.real(1)?, op.eps).into(),
        KernelOp::RmsNormDx(_) => vec![norm::rms_norm_dx(o.real(0)?, o.real(1)?, o.real(2)?, o.real(3)?)],
        KernelOp::RmsNormDgamma(_) => vec![norm::rms_norm_dgamma(o.real(0)?, o.real(1)?, o.real(2)?)],
        KernelOp::LayerNorm(op) => norm::layer_norm(o.real(0)?, o.real(1)?, o.real(2)?, op.eps).into(),
        KernelOp::LayerNormDx(_) => {
            vec![norm::layer_norm_dx(o.real(0)?, o.real(1)?, o.real(2)?, o.real(3)?, o.real(4)?)]
        }
        KernelOp::LayerNormDgamma(_) => {
            vec![norm::layer_norm_dgamma(o.real(0)?, o.real(1)?, o.real(2)?, o.real(3)?)]
        }
        KernelOp::Softmax(_) => vec![norm::softmax(o.real(0)?)],
        KernelOp::SoftmaxGrad(_) => vec![norm::softmax_grad(o.real(0)?, o.real(1)?)],
        KernelOp::Rope(op) => {
            let by_length = op.scaling.as_ref().is_some_and(Scaling::reads_lengths);
            let lengths = if by_length { Some(o.int(2)?) } else { None };
            vec![attention::rope(op, o.real(0)?, o.int(1)?, lengths)]
        }
        KernelOp::Attention(op) => o.attention(&op.0, context)?.forward().into(),
        KernelOp::AttentionGrad(op) => o.attention(&op.0, context)?.backward(o.real(3)?, o.real(4)?, o.real(5)?).into(),
        KernelOp::Scan(op) => vec![o.scan(&op.0)?.forward()],
        KernelOp::ScanGrad(op) => {
            let dout = op.0.operands();
            o.scan(&op.0)?.backward(o.real(dout)?, o.optional(dout + 1)?).into_list()
        }
        KernelOp::ScanState(op) => o.scan_of_blocks(&op.0, None)?.of_blocks(&dims[1]).into(),
        KernelOp::ScanDstart(op) => {
            let dout = o.real(o.0.len() - 1)?;
            vec![o.scan_of_blocks(&op.0, Some(dout))?.by_start(dout)]
        }
        KernelOp::Carry(op) => vec![scan::carry(o.real(0)?, o.real(1)?, op.reverse)],
        KernelOp::ShortConv(op) => {
            let (x, w) = (o.real(0)?, o.real(1)?);
            vec![o.short_conv(op.block, w.columns())?.forward(x, w, o.optional(3)?)]
        }
        KernelOp::ShortConvDx(op) => {
            let (dy, w) = (o.real(0)?, o.real(1)?);
            vec![o.short_conv(op.block, w.columns())?.by_x(dy, w, o.optional(3)?)]
        }
        KernelOp::ShortConvDw(op) => {
            let (x, dy) = (o.real(0)?, o.real(1)?);
            vec![o.short_conv(op.block, op.taps.size as usize)?.by_w(x, dy, o.optional(3)?, &dims[0])]
        }
        KernelOp::ShortConvDstart(op) => {
            let (dy, w) = (o.real(0)?, o.real(1)?);
            vec![o.short_conv(Some(op.block), w.columns())?.by_start(dy, w, &dims[0])]
        }
        KernelOp::Embedding(_) => vec![token::embedding(o.int(0)?, o.real(1)?, &dims[0])],
        KernelOp::EmbeddingGrad(op) => vec![token::embedding_grad(o.int(0)?, o.real(1)?, &dims[0], op.pad)],
        KernelOp::CrossEntropy(_) => token::cross_entropy(o.real(0)?, o.int(1)?).into(),
        KernelOp::CrossEntropyGrad(_) => {
            vec![token::cross_entropy_grad(o.real(0)?, o.int(1)?, o.real(2)?, o.real(3)?)]
        }
        KernelOp::SumExp(_) => vec![token::sum_exp(o.real(0)?, o.real(1)?)],
        KernelOp::Pick(_) => vec![token::pick(o.real(0)?, o.int(1)?)],
        KernelOp::TokenLoss(_) => vec![token::token_loss(o.real(0)?, o.real(1)?, o.int(2)?)],
        KernelOp::TopKGrad(_) => vec![experts::top_k_grad(o.int(0)?, o.real(1)?, &dims[0])],
        KernelOp::Combine(_) => vec![experts::combine(o.real(0)?, o.int(1)?, o.optional(2)?, &dims[0])],
        KernelOp::CombineDw(_) => vec![experts::combine_dw(o.real(0)?, o.real(1)?, o.int(2)?)],
        KernelOp::IndexScores(_) => {
            vec![Indexer { q: o.real(0)?, k: o.real(1)?, w: o.real(2)? }.scores(o.int(3)?)]
        }
        KernelOp::IndexScoresGrad(_) => {
            Indexer { q: o.real(0)?, k: o.real(1)?, w: o.real(2)? }.gradient(o.int(3)?, o.real(4)?).into()
        }
        KernelOp::SparseAttention(op) => {
            SparseAttention { q: o.real(0)?, k: o.real(1)?, index: o.int(3)?, scale: op.scale }
                .forward(o.real(2)?)
                .into()
        }
        KernelOp::SparseAttentionGrad(op) => {
            SparseAttention { q: o.real(0)?, k: o.real(1)?, index: o.int(6)?, scale: op.scale }
                .backward(o.real(2)?, o.real(3)?, o.real(4)?, o.real(5)?)
                .into()
        }
        KernelOp::KeyMass(op) => {
            vec![SparseAttention { q: o.real(0)?, k: o.real(1)?, index: o.int(3)?, scale: op.scale }.mass(o.real(2)?)]
        }
        KernelOp::IndexLoss(_) => vec![sparse::index_loss(o.real(0)?, o.real(1)?, o.int(2)?)],
        KernelOp::IndexLossGrad(_) => {
            vec![sparse::index_loss_grad(o.real(0)?, o.real(1)?, o.int(2)?, o.real(3)?)]
        }
        KernelOp::TopK(_)
        | KernelOp::SelectKeys(_)
        | KernelOp::Dispatch(_)
        | KernelOp::Compare(_)
        | KernelOp::Iota(_) => {
            return Err("its results are not all floats".to_string());
        }
        KernelOp::Broadcast(_)
        | KernelOp::Permute(_)
        | KernelOp::Reshape(_)
        | KernelOp::Slice(_)
        | KernelOp::Pad(_) => {
            return Err("it has no operand".to_string());
        }
        KernelOp::Dropout(op) => vec![update::dropout(o.real(0)?, op, context)],
        KernelOp::Jitter(op) => vec![update::jitter(o.real(0)?, op, context)],
        KernelOp::AbsMax(_) => vec![quantise::absmax(o.real(0)?, &dims[0])],
        KernelOp::ScaleFor(op) => vec![quantise::scale_for(o.real(0)?, op.to)?],
        KernelOp::Quantise(op) => vec![quantise::quotients(o.real(0)?, o.real(1)?, op.to)?],
        KernelOp::Exponents(_) => vec![quantise::exponents(o.real(0)?, &dims[0])],
        KernelOp::Ages(_) => vec![quantise::ages(o.real(0)?, o.real(1)?, o.real(2)?)],
        KernelOp::DelayedScale(op) => vec![quantise::delayed_scale(o.real(0)?, op)?],
        KernelOp::SumSquares(_) => vec![update::sum_squares(o.real(0)?)],
        KernelOp::AdamW(op) => update::adamw(op, &o.reals()?),
        KernelOp::Sgd(op) => update::sgd(op, &o.reals()?),
        KernelOp::Composite(CompositeOp::ChoiceCount(_)) => vec![experts::choice_count(o.int(0)?, &dims[0])],
        KernelOp::Composite(CompositeOp::ClipFactor(op)) => vec![elementwise::clip_factor(op.max, o.real(0)?)],
    })
}
