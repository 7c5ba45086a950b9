//! Tests of every kernel op against the reference evaluator, unsharded and with each shardable factor of its rule split in
//! three.

mod scans;

use super::Cpu;
use device::backend::{Backend, KernelSite, LaunchSite, Memory, Span, updated};
use device::host;
use device::region::{Region, assemble, extract};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::*;
use ir::rule::{Rule, TensorFactors};
use ir::types::{DType, Dim, PartialKind, Type};
use kernels::cpu::attention::rounds_weights;
use kernels::cpu::dropout::{normal, uniform};
use kernels::cpu::narrow::Narrow;
use reference::{Array, Context, Tensor as Dense, ops::evaluate};

const SEED: u64 = 5;
const STEP: u64 = 2;
const SITE: LaunchSite = LaunchSite { microbatch: 3, index: 4 };

/// Ops with their operands' sizes; `i` numbers the integer operands.
type Case = (Op, Vec<&'static [u64]>, Vec<usize>);

fn case(op: impl Into<Op>, operands: &[&'static [u64]], ints: &[usize]) -> Case {
    (op.into(), operands.to_vec(), ints.to_vec())
}

fn dims(sizes: &[u64]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::sized(size)).collect()
}

fn elementwise() -> Vec<Case> {
    let unary = UnaryKind::ALL.iter().map(|&kind| case(Unary(kind), &[&[4, 5]], &[]));
    let binary = BinaryKind::ALL.iter().map(|&kind| case(Binary::of(kind), &[&[4, 5], &[4, 5]], &[]));
    let mut cases: Vec<Case> = unary.chain(binary).collect();
    cases.push(case(Binary::spread(BinaryKind::Div, "a b, b -> a b").unwrap(), &[&[4, 5], &[5]], &[]));
    cases
}

fn cases() -> Vec<Case> {
    let eq = |text| Equation::parse(text).unwrap();
    let heads: [&[u64]; 7] = [&[3, 4, 2, 3, 6], &[3, 5, 2, 6], &[3, 5, 2, 4], &[3, 4], &[3, 5], &[3, 4], &[3, 5]];
    let (out, lse): (&[u64], &[u64]) = (&[3, 4, 2, 3, 4], &[3, 4, 2, 3]);
    let backward = [heads[0], heads[1], heads[2], out, lse, out, heads[3], heads[4], heads[5], heads[6]];
    let weights = Some(Dropout { p: 0.4, path: "there".to_string(), piece: None });
    let plain = |causal| AttentionSettings::new(0.4, causal);
    let dropped = |causal| AttentionSettings { dropout: weights.clone(), ..plain(causal) };
    let near = AttentionSettings { window: Some(2), softcap: Some(0.8), ..plain(true) };
    let chunked = AttentionSettings { chunk: Some(2), ..plain(true) };
    let piece = Some(Piece { origin: 1, whole: 7 });
    let rope = |scaling, inverse| Rope { theta: 100.0, scaling, turned: None, gain: 1.0, inverse };
    // Of the three pairs, one is kept, one is between, one is scaled.
    let by_wavelength = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 100 };
    // Lengths are from -1 to 3, as all integers here.
    let lengths = Scaling::Lengths { short: vec![1.0, 2.5, 7.0].into(), long: vec![3.0, 1.5, 4.0].into(), context: 1 };
    let each = Scaling::Pairs { divisors: vec![1.0, 2.5, 7.0].into() };
    let dispatch = Dispatch { experts: Dim::sized(6), capacity: Dim::sized(2) };
    let by_pair = |fractional| Scaling::Yarn { factor: 8.0, low: 1.0, high: 4.0, context: 100, fractional };
    let adamw = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 };
    let ragged = |text| Einsum { ragged: Some(Ragged { rows: 2, mean: 2 }), ..Einsum::new(text).unwrap() };
    let mut cases = [elementwise(), sparse()].concat();
    cases.extend([
        case(Einsum::new("b s h, h g d -> b s g d").unwrap(), &[&[3, 4, 5], &[5, 2, 3]], &[]),
        case(Einsum::new("a b -> b").unwrap(), &[&[4, 5]], &[]),
        case(ragged("q e c h, e h m -> q e c m"), &[&[3, 4, 5, 6], &[4, 6, 3], &[3, 4]], &[2]),
        case(ragged("q e c h, q e c m -> e m h"), &[&[3, 4, 5, 6], &[3, 4, 5, 3], &[3, 4]], &[2]),
        case(Reduce::new(PartialKind::Sum, "a b c -> b").unwrap(), &[&[3, 4, 5]], &[]),
        case(Reduce::new(PartialKind::Max, "a b c -> a c").unwrap(), &[&[3, 4, 5]], &[]),
        case(Broadcast { equation: eq("b -> a b c"), free: dims(&[3, 7]) }, &[&[4]], &[]),
        case(Permute::new("a b c -> c a b").unwrap(), &[&[3, 4, 5]], &[]),
        case(Reshape { dims: dims(&[3, 20]) }, &[&[3, 4, 5]], &[]),
        case(Reshape { dims: dims(&[12, 5, 6]) }, &[&[3, 4, 30]], &[]),
        case(Reshape { dims: dims(&[3, 8, 1]) }, &[&[6, 1, 4]], &[]),
        case(Reshape { dims: dims(&[2, 3, 4]) }, &[&[4, 6]], &[]),
        case(Slice { dim: 1, start: 1, length: 2 }, &[&[3, 4, 5]], &[]),
        case(Pad { dim: 1, before: 2, after: 1 }, &[&[3, 4, 5]], &[]),
        case(Concat { dim: 1 }, &[&[3, 4, 5], &[3, 2, 5]], &[]),
        case(RmsNorm { eps: 1e-5 }, &[&[3, 4, 5], &[5]], &[]),
        case(RmsNormDx, &[&[3, 4, 5], &[5], &[3, 4], &[3, 4, 5]], &[]),
        case(RmsNormDgamma, &[&[3, 4, 5], &[3, 4], &[3, 4, 5]], &[]),
        case(LayerNorm { eps: 1e-5 }, &[&[3, 4, 5], &[5], &[5]], &[]),
        case(LayerNormDx, &[&[3, 4, 5], &[5], &[3, 4], &[3, 4], &[3, 4, 5]], &[]),
        case(LayerNormDgamma, &[&[3, 4, 5], &[3, 4], &[3, 4], &[3, 4, 5]], &[]),
        case(Softmax, &[&[4, 5]], &[]),
        case(SoftmaxGrad, &[&[4, 5], &[4, 5]], &[]),
        case(rope(None, false), &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(Rope { turned: Some(4), ..rope(None, true) }, &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(rope(Some(Scaling::Linear { factor: 2.0 }), true), &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(rope(Some(by_wavelength), false), &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(rope(Some(by_pair(false)), false), &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(Rope { gain: 1.3, ..rope(Some(each), true) }, &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(rope(Some(lengths), false), &[&[3, 4, 2, 6], &[3, 4], &[3, 4]], &[1, 2]),
        case(Attention(chunked.clone()), &heads, &[3, 4, 5, 6]),
        case(AttentionGrad(chunked), &backward, &[6, 7, 8, 9]),
        case(rope(Some(by_pair(true)), true), &[&[3, 4, 2, 6], &[3, 4]], &[1]),
        case(Attention(plain(true)), &heads, &[3, 4, 5, 6]),
        case(Attention(dropped(false)), &heads, &[3, 4, 5, 6]),
        case(AttentionGrad(plain(false)), &backward, &[6, 7, 8, 9]),
        case(AttentionGrad(dropped(true)), &backward, &[6, 7, 8, 9]),
        case(Attention(near.clone()), &heads, &[3, 4, 5, 6]),
        case(AttentionGrad(near), &backward, &[6, 7, 8, 9]),
        case(Attention(dropped(true)), &[&heads[..], &[&[2, 3]]].concat(), &[3, 4, 5, 6]),
        case(Attention(AttentionSettings { piece, ..dropped(true) }), &heads, &[3, 4, 5, 6]),
        case(AttentionGrad(AttentionSettings { piece, ..dropped(true) }), &backward, &[6, 7, 8, 9]),
        case(Dropout { p: 0.4, path: "here".to_string(), piece }, &[&[3, 4, 5]], &[]),
        case(Dropout { p: 0.4, path: "here".to_string(), piece: None }, &[&[3, 4, 5]], &[]),
        case(Jitter { width: 0.4, path: "here".to_string(), piece }, &[&[3, 4, 5]], &[]),
        case(Jitter { width: 0.4, path: "here".to_string(), piece: None }, &[&[3, 4, 5]], &[]),
        case(Embedding::default(), &[&[3, 4], &[7, 5]], &[0]),
        case(EmbeddingGrad { rows: Dim::sized(7), pad: None }, &[&[3, 4], &[3, 4, 5]], &[0]),
        case(EmbeddingGrad { rows: Dim::sized(7), pad: Some(1) }, &[&[3, 4], &[3, 4, 5]], &[0]),
        case(CrossEntropy, &[&[3, 4, 7], &[3, 4]], &[1]),
        case(CrossEntropyGrad, &[&[3, 4, 7], &[3, 4], &[3, 4], &[]], &[1]),
        case(SumExp, &[&[3, 4, 7], &[3, 4]], &[]),
        case(Pick, &[&[3, 4, 7], &[3, 4]], &[1]),
        case(TokenLoss, &[&[3, 4], &[3, 4], &[3, 4]], &[2]),
        case(TopK { k: 3, limit: None }, &[&[3, 4, 8]], &[]),
        case(TopK { k: 3, limit: Some(GroupLimit { groups: 4, from: 3, by: 2 }) }, &[&[3, 4, 8], &[8]], &[]),
        case(TopKGrad { experts: Dim::sized(9) }, &[&[3, 4, 2], &[3, 4, 2]], &[0]),
        case(dispatch.clone(), &[&[3, 4, 6, 5], &[3, 4, 6, 2]], &[1]),
        case(dispatch, &[&[3, 4, 6, 5], &[3, 4, 6, 2], &[3, 4, 6, 2]], &[1]),
        case(Combine, &[&[3, 4, 6, 2, 5], &[3, 4, 6, 2]], &[1]),
        case(Combine, &[&[3, 4, 6, 2, 5], &[3, 4, 6, 2], &[3, 4, 6, 2]], &[1]),
        case(CombineDw, &[&[3, 4, 6, 5], &[3, 4, 6, 2, 5], &[3, 4, 6, 2]], &[2]),
        case(SumSquares, &[&[4, 5]], &[]),
        case(adamw, &[&[4, 5], &[4, 5], &[4, 5], &[4, 5], &[], &[], &[]], &[]),
        case(Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.1 }, &[&[4, 5], &[4, 5], &[], &[]], &[]),
        case(Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.1 }, &[&[4, 5], &[4, 5], &[4, 5], &[], &[]], &[]),
        case(Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.1 }, &[&[4, 5], &[4, 5], &[4, 5], &[], &[]], &[]),
    ]);
    cases
}

/// Attention to chosen keys, and its indexer.
fn sparse() -> Vec<Case> {
    let sparse: [&[u64]; 4] = [&[3, 6, 3, 3, 4], &[3, 9, 3, 4], &[3, 9, 3, 2], &[3, 6, 3, 3, 2]];
    vec![
        case(
            SelectKeys { keys: 3 },
            &[&[3, 6, 3, 4], &[3, 9, 4], &[3, 6, 3], &[3, 6], &[3, 9], &[3, 6], &[3, 9]],
            &[3, 4, 5, 6],
        ),
        case(IndexScores, &[&[3, 6, 3, 4], &[3, 9, 4], &[3, 6, 3], &[3, 6, 5]], &[3]),
        case(IndexScoresGrad, &[&[3, 6, 3, 4], &[3, 9, 4], &[3, 6, 3], &[3, 6, 5], &[3, 6, 5]], &[3]),
        case(SparseAttention { scale: 0.4 }, &[sparse[0], sparse[1], sparse[2], &[3, 6, 5]], &[3]),
        case(
            SparseAttentionGrad { scale: 0.4 },
            &[sparse[0], sparse[1], sparse[2], sparse[3], &[3, 6, 3, 3], sparse[3], &[3, 6, 5]],
            &[6],
        ),
        case(KeyMass { scale: 0.4 }, &[sparse[0], sparse[1], &[3, 6, 3, 3], &[3, 6, 5]], &[3]),
        case(IndexLoss, &[&[3, 6, 5], &[3, 6, 5], &[3, 6, 5]], &[2]),
        case(IndexLossGrad, &[&[3, 6, 5], &[3, 6, 5], &[3, 6, 5], &[]], &[2]),
    ]
}

fn quantised() -> Vec<Case> {
    let blocks = |words: &[u64]| AbsMax { block: words.iter().map(|&size| (size > 0).then_some(size)).collect() };
    let scaled = |text| Einsum::new(text).unwrap().scaled(DType::BF16).unwrap();
    let mut cases = vec![
        case(blocks(&[1, 1, 4]), &[&[3, 4, 12]], &[]),
        case(blocks(&[2, 3]), &[&[6, 9]], &[]),
        case(blocks(&[0, 0]), &[&[6, 9]], &[]),
        case(ScaleFor { to: DType::F8E4M3 }, &[&[3, 4]], &[]),
        case(ScaleFor { to: DType::F8E5M2 }, &[&[]], &[]),
        case(Exponents, &[&[3, 4, 12]], &[]),
        case(Ages, &[&[4, 6], &[4, 6], &[]], &[]),
        case(DelayedScale { to: DType::F8E4M3, within: 1 }, &[&[256]], &[]),
        case(scaled("b s h, h f -> b s f"), &[&[3, 4, 12], &[12, 6], &[3, 4, 3], &[3, 2]], &[]),
        case(scaled("b s f, h f -> b s h"), &[&[3, 4, 6], &[12, 6], &[3, 4, 1], &[3, 2]], &[]),
        case(scaled("b s h, b s f -> h f"), &[&[3, 6, 5], &[3, 6, 7], &[3, 2, 5], &[3, 2, 7]], &[]),
        case(scaled("b s h, h f -> b s f"), &[&[3, 4, 6], &[6, 5], &[1, 1, 1], &[1, 1]], &[]),
    ];
    for to in [DType::F8E4M3, DType::F8E5M2] {
        cases.push(case(Quantise { to }, &[&[3, 4, 12], &[3, 4, 3]], &[]));
        cases.push(case(Quantise { to }, &[&[3, 9, 5], &[3, 3, 5]], &[]));
        cases.push(case(Quantise { to }, &[&[4, 5], &[1, 1]], &[]));
    }
    cases
}

fn selections() -> Vec<Case> {
    let [overlapping, apart] =
        [[3, 2, 2], [2, 2, 1]].map(|[size, stride, dilation]| Frame { dim: 1, size, stride, dilation });
    let [rows, listed] = [Selected { dim: 1, batch: 0 }, Selected { dim: 2, batch: 1 }];
    vec![
        case(Reverse { dim: 1 }, &[&[3, 4, 5]], &[]),
        case(Windows { frame: overlapping }, &[&[3, 9, 4]], &[]),
        case(Windows { frame: apart }, &[&[5, 9]], &[]),
        case(Fold { frame: overlapping, whole: Dim::sized(9) }, &[&[3, 3, 3, 4]], &[]),
        case(Fold { frame: apart, whole: Dim::sized(9) }, &[&[5, 4, 2]], &[]),
        case(Take { at: rows }, &[&[3, 7, 5], &[4, 3]], &[1]),
        case(Take { at: listed }, &[&[3, 4, 7, 5], &[3, 6]], &[1]),
        case(ScatterAdd { at: rows, whole: Dim::sized(7) }, &[&[3, 4, 3, 5], &[4, 3]], &[1]),
        case(ScatterAdd { at: listed, whole: Dim::sized(7) }, &[&[3, 4, 6, 5], &[3, 6]], &[1]),
        case(DynamicSlice { dim: 1, length: 2 }, &[&[3, 6, 4], &[]], &[1]),
        case(DynamicPad { dim: 1, whole: Dim::sized(6) }, &[&[3, 2, 4], &[]], &[1]),
        case(Select { not: false }, &[&[4, 5], &[4, 5], &[4, 5]], &[0]),
        case(Select { not: true }, &[&[4, 5], &[4, 5]], &[0]),
        case(Compare(CompareKind::Equal), &[&[4, 5], &[4, 5]], &[0, 1]),
        case(Compare(CompareKind::LessEqual), &[&[4, 5], &[4, 5]], &[0, 1]),
        case(Iota { dim: 1, dims: dims(&[4, 6, 5]), dtype: DType::I32 }, &[], &[]),
        case(Iota { dim: 0, dims: dims(&[4, 6]), dtype: DType::F32 }, &[], &[]),
        case(Unary(UnaryKind::Cast(DType::F32)), &[&[4, 5]], &[0]),
        case(Unary(UnaryKind::Cast(DType::BF16)), &[&[4, 5]], &[0]),
        case(Compare(CompareKind::Less), &[&[4, 5], &[4, 5]], &[]),
    ]
}

/// Elements of an operand: integers as small labels, floats at random, positive where a root or a logarithm wants it.
fn operand(op: &Op, place: usize, ty: &Type) -> Array<f64> {
    let dims: Vec<usize> = ty.sizes().iter().map(|&size| size as usize).collect();
    let key = [place as u32, 9];
    if ty.dtype == DType::I32 {
        let are_places =
            matches!(op, Op::Kernel(KernelOp::Attention(_) | KernelOp::AttentionGrad(_) | KernelOp::SelectKeys(_)));
        let last = if are_places { 2.0 } else { 8.0 };
        return Array::Int(Dense::from_fn(&dims, |i| (uniform(key, i as u64) * last) as i32 - 1));
    }
    let update = matches!(op, Op::Kernel(KernelOp::AdamW(_) | KernelOp::Sgd(_)));
    let is_mass = place == 1 && matches!(op, Op::Kernel(KernelOp::IndexLoss(_) | KernelOp::IndexLossGrad(_)));
    let positive = update || is_mass || matches!(op, Op::Kernel(KernelOp::Unary(_) | KernelOp::Binary(_)));
    // A state that does not grow: decays are below 0, and keys below 1.
    let factor = match (op, place) {
        (Op::Kernel(KernelOp::Scan(_) | KernelOp::ScanGrad(_)), 3) => return Array::Real(decays(&dims, key)),
        (Op::Kernel(KernelOp::ScanState(_) | KernelOp::ScanDstart(_)), 2) => return Array::Real(decays(&dims, key)),
        (Op::Kernel(KernelOp::Scan(_) | KernelOp::ScanGrad(_) | KernelOp::ScanDstart(_)), 0 | 1) => 0.4,
        (Op::Kernel(KernelOp::Scan(_) | KernelOp::ScanGrad(_)), 4) => return Array::Real(shares(&dims, key)),
        (Op::Kernel(KernelOp::ScanState(_) | KernelOp::ScanDstart(_)), 3) => return Array::Real(shares(&dims, key)),
        (Op::Kernel(KernelOp::ScanState(_)), 0) | (Op::Kernel(KernelOp::Carry(_)), 1) => 0.4,
        _ => 1.0,
    };
    let number = |i: usize| factor * if positive { 0.1 + uniform(key, i as u64) } else { normal(key, i as u64) };
    // The last scalar of adamw is the step.
    let step = matches!(op, Op::Kernel(KernelOp::AdamW(_))) && place == 6;
    Array::Real(Dense::from_fn(&dims, |i| if step { 2.0 } else { f64::from(number(i)) }))
}

/// Betas or rates, from 0 to 1.
fn shares(dims: &[usize], key: [u32; 2]) -> Dense<f64> {
    Dense::from_fn(dims, |i| f64::from(uniform(key, i as u64)))
}

/// Logarithms of factors of decay.
fn decays(dims: &[usize], key: [u32; 2]) -> Dense<f64> {
    Dense::from_fn(dims, |i| -f64::from(uniform(key, i as u64)))
}

/// The rank's part of an operand, as it is stored.
fn part(array: &Array<f64>, ty: &Type, region: &Region) -> Vec<u8> {
    match array {
        Array::Int(whole) => {
            let mut part = vec![0; region.len()];
            extract(&whole.data, ty, region, &mut part);
            host::bytes_of(&part).to_vec()
        }
        Array::Real(whole) => {
            let whole: Vec<f32> = whole.data.iter().map(|&x| x as f32).collect();
            let mut part = vec![0.0; region.len()];
            extract(&whole, ty, region, &mut part);
            host::stored(ty.dtype, &part).into_owned()
        }
    }
}

/// The numbers at a place.
fn made(backend: &mut Cpu, span: Span) -> Vec<f32> {
    if span.dtype != DType::I32 {
        return host::get(backend, span);
    }
    let mut ints = vec![0i32; span.len];
    backend.read(span, host::bytes_of_mut(&mut ints));
    ints.into_iter().map(|int| int as f32).collect()
}

/// The numbers of a result.
fn numbers(array: Array<f64>) -> Vec<f64> {
    match array {
        Array::Real(whole) => whole.data,
        Array::Int(whole) => whole.data.iter().copied().map(f64::from).collect(),
    }
}

/// How an op is run.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Its results have places of their own.
    Apart,
    /// It is run once more, and adds.
    Added,
    /// Its result is on this operand.
    On(usize),
}

/// Runs an op on all ranks and puts the results together.
fn run(op: &KernelOp, mesh: &Mesh, given: &[Array<f64>], types: [&[Type]; 2], how: How) -> Vec<Vec<f32>> {
    let mut wholes: Vec<Vec<f32>> = types[1].iter().map(|ty| vec![0.0; ty.elements() as usize]).collect();
    for rank in 0..mesh.devices() {
        let (mut backend, coordinates) = (Cpu::new(1), mesh.coordinates(rank));
        let region = |ty: &Type| Region::of(ty, mesh, &coordinates);
        let mut end = 0;
        let mut room = |ty: &Type| {
            let span = Span::new(ty.dtype, end, region(ty).len());
            end += span.bytes().next_multiple_of(64);
            span
        };
        let operands: Vec<Span> = types[0].iter().map(&mut room).collect();
        let mut results: Vec<Span> = types[1].iter().map(room).collect();
        results.iter_mut().zip(updated(op)).for_each(|(result, &operand)| *result = operands[operand]);
        if let How::On(operand) = how {
            results[0] = operands[operand];
        }
        backend.reserve(end).unwrap();
        backend.begin_step(SEED, STEP);
        for ((&span, array), ty) in operands.iter().zip(given).zip(types[0]) {
            backend.write(span, &part(array, ty, &region(ty)));
        }
        let sides = types.map(|side| side.iter().collect::<Vec<_>>());
        let site =
            KernelSite { mesh, coordinates: &coordinates, operands: &sides[0], results: &sides[1], forward: true };
        let mut kernel = backend.prepare(op, &site).unwrap();
        backend.launch(&mut kernel, SITE, &operands, &results, false);
        if how == How::Added {
            backend.launch(&mut kernel, SITE, &operands, &results, true);
        }
        for ((&result, ty), whole) in results.iter().zip(types[1]).zip(&mut wholes) {
            let counts = rank == 0 || !ty.sharded_axes().is_empty() || ty.partial.is_some();
            if counts {
                assemble(&made(&mut backend, result), ty, &region(ty), whole);
            }
        }
    }
    wholes
}

/// The error of results of an op on operands of types, relative to the largest one: the rounding of f32 inside a kernel, and that of the
/// weights of an attention, half of a last place of bf16. The magnitudes of all terms are at most four times the largest sum here.
fn error_inside(op: &Op, operands: &[Type]) -> f64 {
    let is_bf16 = operands.iter().filter(|ty| ty.dtype.is_float()).take(3).all(|ty| ty.dtype == DType::BF16);
    let rounds = op.name().starts_with("attention") && is_bf16 && rounds_weights(Narrow::Bf16);
    if rounds { 4.0 / 256.0 } else { 1e-5 }
}

/// Checks that results are `times` those of the reference, to within the error inside of a kernel and, in a narrow format, to
/// the nearest number or, where that rounding decides, to its neighbour.
fn check(
    (op, operands): (&Op, &[Type]),
    got: &[Vec<f32>],
    (want, types): (&[Vec<f64>], &[Type]),
    times: f64,
    how: &str,
) {
    for ((got, want), ty) in got.iter().zip(want).zip(types) {
        let size = want.iter().filter(|x| x.is_finite()).fold(1e-3f64, |max, x| max.max(x.abs())) * times;
        for (&got, &want) in got.iter().zip(want) {
            let want = times * want;
            let inside = error_inside(op, operands) * size;
            // Each rounding of a sum, or of its terms when it is added to, is half of a last place.
            let last = last_place(ty.dtype, want.abs() + inside);
            let same = f64::from(got) == want || (f64::from(got) - want).abs() <= inside + times / 2.0 * last;
            assert!(same, "{} {how}: {got} is not {want}: {:?}", op.name(), ty.dtype);
        }
    }
}

/// The distance of a number to the next larger one of a format, or if it is the largest, to the next smaller one.
fn last_place(dtype: DType, size: f64) -> f64 {
    let Some(format) = host::narrow(dtype) else { return 0.0 };
    let near = format.nearest(size as f32).min(format.largest());
    let side = if near < format.largest() { 1.0 } else { -1.0 };
    let mut step = (near * f32::EPSILON).max(f32::from_bits(1));
    while format.nearest(near + side * step) == near {
        step *= 2.0;
    }
    f64::from((near - format.nearest(near + side * step)).abs())
}

/// The types with the letter's dims cut in three; none if the rule forbids it.
fn sharded(op: &KernelOp, factor: usize, types: [&[Type]; 2]) -> Option<[Vec<Type>; 2]> {
    let sides = types.map(|side| side.iter().collect::<Vec<_>>());
    let rule = Rule::parse(&op.def().rule(&sides[0], &sides[1])).unwrap().instantiate(&sides[0], &sides[1]).unwrap();
    let mut axes = vec![Axes::none(); rule.factors.len()];
    *axes.get_mut(factor)? = Axes::one(AxisId::from_u32(0));
    let on = |ty: &Type, factors: &TensorFactors| {
        let mut ty = ty.clone();
        ty.dims.iter_mut().zip(rule.dim_axes(factors, &axes)).for_each(|(dim, axes)| dim.axes = axes);
        ty
    };
    let whole = rule.factors[factor].replicated || rule.factors[factor].partial == Some(PartialKind::Max);
    let mesh = Mesh::new("m", &[("a", 3)]);
    if whole || !rule.compounds_hold(&axes, &mesh) {
        return Some(types.map(<[Type]>::to_vec));
    }
    let operands = types[0].iter().zip(&rule.operands).map(|(ty, factors)| on(ty, factors)).collect();
    let results = types[1].iter().zip(&rule.results).enumerate().map(|(place, (ty, factors))| {
        let partial = rule.partial(place, &axes);
        Type { partial, ..on(ty, factors) }
    });
    Some([operands, results.collect()])
}

/// The types of an op's operands and results.
type Signature = [Vec<Type>; 2];

/// The signatures of an op whose float operands are f32 or of one narrow format each, as the op's law allows.
fn signatures(op: &Op, sizes: &[&[u64]], ints: &[usize], narrow: DType) -> Vec<Signature> {
    let floats: Vec<usize> = (0..sizes.len()).filter(|place| !ints.contains(place)).collect();
    let signature = |chosen: usize| {
        let dtype = |place: usize| match floats.iter().position(|&float| float == place) {
            None => DType::I32,
            Some(at) if chosen >> at & 1 == 1 => narrow,
            Some(_) => DType::F32,
        };
        let types: Vec<Type> = sizes.iter().enumerate().map(|(place, sizes)| Type::of(dtype(place), sizes)).collect();
        let results = op.infer(&types.iter().collect::<Vec<_>>()).ok()?;
        Some([types, results])
    };
    (1..1 << floats.len()).filter_map(signature).collect()
}

/// Runs an op in all ways on these types and compares it with the reference.
fn compare(op: &Op, [types, results]: &Signature) {
    let (one, mesh) = (Mesh::default(), Mesh::new("m", &[("a", 3)]));
    let Op::Kernel(kernel) = op else { return };
    let rounded = |(place, ty): (usize, &Type)| match (operand(op, place, ty), host::narrow(ty.dtype)) {
        (Array::Real(whole), Some(format)) => Array::Real(whole.map(|x| f64::from(format.nearest(x as f32)))),
        (array, _) => array,
    };
    let given: Vec<Array<f64>> = types.iter().enumerate().map(rounded).collect();
    let dims: Vec<Vec<usize>> =
        results.iter().map(|ty| ty.sizes().iter().map(|&size| size as usize).collect()).collect();
    let context =
        Context { seed: SEED, step: STEP, index: SITE.index, microbatch: SITE.microbatch, ..Context::default() };
    let want = evaluate(op, &given.iter().collect::<Vec<_>>(), &dims, context).unwrap();
    let want: Vec<Vec<f64>> = want.into_iter().map(numbers).collect();
    let apart = run(kernel, &one, &given, [types, results], How::Apart);
    check((op, types), &apart, (&want, results), 1.0, "whole");
    let facts = kernel.def().facts();
    let views: &[usize] = if facts.is_view { &[0] } else { &[] };
    for &place in facts.in_place.iter().chain(views) {
        if types[place].dtype == results[0].dtype {
            assert_eq!(run(kernel, &one, &given, [types, results], How::On(place)), apart, "{} in place", op.name());
        }
    }
    if results.len() == 1 && results[0].dtype.is_float() && updated(kernel).is_empty() {
        check((op, types), &run(kernel, &one, &given, [types, results], How::Added), (&want, results), 2.0, "added");
    }
    for factor in 0.. {
        let Some([types, results]) = sharded(kernel, factor, [types, results]) else { break };
        // Terms of a sum that are rounded one by one are no rounded sum.
        if results.iter().any(|ty| ty.partial.is_some() && ty.dtype != DType::F32) {
            continue;
        }
        let got = run(kernel, &mesh, &given, [&types, &results], How::Apart);
        check((op, &types), &got, (&want, &results), 1.0, &format!("with factor {factor} sharded"));
    }
}

#[test]
fn every_op_equals_the_reference_whole_and_sharded() {
    let mut seen: Vec<&str> = Vec::new();
    // Contractions with scales have operands of 8 bits.
    let unscaled = quantised().into_iter().filter(|(op, ..)| op.name() != "einsum");
    for (op, sizes, ints) in cases().into_iter().chain(unscaled).chain(selections()).chain(scans::scans()) {
        seen.push(op.name());
        let dtype = |place| if ints.contains(&place) { DType::I32 } else { DType::F32 };
        let types: Vec<Type> = sizes.iter().enumerate().map(|(place, sizes)| Type::of(dtype(place), sizes)).collect();
        let results = op.infer(&types.iter().collect::<Vec<_>>()).unwrap_or_else(|why| panic!("{}: {why}", op.name()));
        compare(&op, &[types, results]);
    }
    let missing: Vec<_> = kernel_names().into_iter().filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} have no case");
}

#[test]
fn every_op_takes_narrow_operands_as_its_law_allows() {
    let mut taken = Vec::new();
    for (op, sizes, ints) in cases().into_iter().chain(quantised()).chain(selections()).chain(scans::scans()) {
        for dtype in [DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2] {
            let signatures = signatures(&op, &sizes, &ints, dtype);
            taken.extend((!signatures.is_empty()).then_some((dtype, op.name())));
            signatures.iter().for_each(|signature| compare(&op, signature));
        }
    }
    for dtype in [DType::BF16, DType::F16] {
        let never = |name: &&str| !taken.contains(&(dtype, *name));
        // Cases with integers alone, and ops on what the optimizer keeps in f32.
        let f32_only = [
            "less_equal",
            "equal",
            "iota",
            "token_loss",
            "carry",
            "index_loss",
            "index_loss_grad",
            "scale_for",
            "ages",
            "delayed_scale",
            "adamw",
            "sgd",
        ];
        assert_eq!(kernel_names().into_iter().filter(never).collect::<Vec<_>>(), f32_only, "{dtype:?}");
    }
}

/// Ops that run on narrow tensors in several parts, the last of them shorter.
#[test]
fn parts_of_rows_make_the_whole() {
    let (x, row, one): (&[u64], &[u64], &[u64]) = (&[450, 301], &[301], &[450]);
    let cases = [
        case(Unary(UnaryKind::Silu), &[x], &[]),
        case(Binary::of(BinaryKind::Mul), &[x, x], &[]),
        case(RmsNorm { eps: 1e-5 }, &[x, row], &[]),
        case(RmsNormDx, &[x, row, one, x], &[]),
        case(LayerNorm { eps: 1e-5 }, &[x, row, row], &[]),
        case(LayerNormDx, &[x, row, one, one, x], &[]),
        case(Softmax, &[x], &[]),
        case(SoftmaxGrad, &[x, x], &[]),
        case(CrossEntropy, &[x, one], &[1]),
        case(CrossEntropyGrad, &[x, one, one, &[]], &[1]),
        case(SumExp, &[x, one], &[]),
        case(Pick, &[x, one], &[1]),
    ];
    for (op, sizes, ints) in cases {
        let signatures = signatures(&op, &sizes, &ints, DType::BF16);
        assert!(!signatures.is_empty(), "{}", op.name());
        signatures.iter().for_each(|signature| compare(&op, signature));
    }
}
