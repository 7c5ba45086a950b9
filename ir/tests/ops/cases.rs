//! The table of all ops: operands that fit each, its results, and an operand that it refuses.

use meshwright_ir::ops::*;
use meshwright_ir::types::{DType, Dim, PartialKind, Type};

/// An op on operands that fit, and what is wrong when one of them is replaced.
pub(super) struct OpCase {
    pub(super) op: Op,
    pub(super) operands: Vec<Type>,
    pub(super) results: Vec<Type>,
    /// The index of an operand, the type that replaces it, and a word of the error. The index after the last appends an operand.
    pub(super) wrong: (usize, Type, &'static str),
}

pub(super) fn f(sizes: &[u64]) -> Type {
    Type::of(DType::F32, sizes)
}

fn i(sizes: &[u64]) -> Type {
    Type::of(DType::I32, sizes)
}

fn bf16(sizes: &[u64]) -> Type {
    Type::of(DType::BF16, sizes)
}

fn case(op: impl Into<Op>, operands: &[&Type], results: &[&Type], wrong: (usize, Type, &'static str)) -> OpCase {
    let owned = |types: &[&Type]| types.iter().map(|&ty| ty.clone()).collect();
    OpCase { op: op.into(), operands: owned(operands), results: owned(results), wrong }
}

pub(super) fn dims(sizes: &[u64]) -> Vec<Dim> {
    f(sizes).dims
}

fn elementwise() -> Vec<OpCase> {
    let functions = UnaryKind::ALL.iter().filter(|kind| !matches!(kind, UnaryKind::Cast(_)));
    let unary = functions.map(|&kind| case(Unary(kind), &[&f(&[2, 3])], &[&f(&[2, 3])], (0, i(&[2, 3]), "float")));
    let to_bf16 = UnaryKind::Cast(DType::BF16);
    let cast = |from: Type| case(Unary(to_bf16), &[&from], &[&bf16(&[2, 3])], (1, f(&[2, 3]), "one operand"));
    let x = f(&[2, 3]);
    let binary =
        BinaryKind::ALL.iter().map(|&kind| case(Binary::of(kind), &[&x, &x], &[&x], (1, f(&[3]), "broadcast")));
    let spread = Binary::spread(BinaryKind::Mul, "a b, b -> a b").unwrap();
    let spread = case(spread, &[&f(&[2, 3]), &f(&[3])], &[&f(&[2, 3])], (1, f(&[4]), "`b` is 3"));
    unary.chain(binary).chain([spread, cast(f(&[2, 3])), cast(i(&[2, 3]))]).collect()
}

fn shapes() -> Vec<OpCase> {
    let sum = Reduce::new(PartialKind::Sum, "a b c -> b").unwrap();
    let max = Reduce::new(PartialKind::Max, "a b -> a").unwrap();
    let broadcast = Broadcast { equation: Equation::parse("a -> a b").unwrap(), free: dims(&[3]) };
    let merge = Reshape { dims: dims(&[2, 12, 5]) };
    let split = Reshape { dims: dims(&[2, 3, 4]) };
    let slice = Slice { dim: 1, start: 1, length: 3 };
    let pad = Pad { dim: 0, before: 1, after: 2 };
    let ragged = Einsum { ragged: Some(Ragged { rows: 1, mean: 2 }), ..Einsum::new("e c h, e h m -> e c m").unwrap() };
    vec![
        case(
            Einsum::new("m k, k n -> m n").unwrap(),
            &[&f(&[2, 3]), &f(&[3, 4])],
            &[&f(&[2, 4])],
            (1, f(&[5, 4]), "`k` is 3"),
        ),
        case(ragged, &[&f(&[2, 3, 4]), &f(&[2, 4, 5]), &i(&[2])], &[&f(&[2, 3, 5])], (2, i(&[3]), "`counts`")),
        case(sum, &[&f(&[2, 3, 4])], &[&f(&[3])], (0, f(&[2, 3]), "rank 2")),
        case(max, &[&f(&[2, 3])], &[&f(&[2])], (0, i(&[2, 3]), "float")),
        case(broadcast, &[&f(&[2])], &[&f(&[2, 3])], (0, f(&[2, 3]), "rank 2")),
        case(Permute::new("a b c -> c a b").unwrap(), &[&f(&[2, 3, 4])], &[&f(&[4, 2, 3])], (0, f(&[2]), "rank 1")),
        case(merge, &[&i(&[2, 3, 4, 5])], &[&i(&[2, 12, 5])], (0, i(&[2, 13, 5]), "elements")),
        case(split, &[&f(&[6, 4])], &[&f(&[2, 3, 4])], (0, f(&[4, 5]), "elements")),
        case(slice, &[&i(&[2, 4])], &[&i(&[2, 3])], (0, i(&[2, 3]), "not a range")),
        case(pad, &[&f(&[2, 4])], &[&f(&[5, 4])], (0, f(&[]), "no dim 0")),
        case(
            Concat { dim: 1 },
            &[&f(&[2, 4]), &f(&[2, 1]), &f(&[2, 2])],
            &[&f(&[2, 7])],
            (1, f(&[3, 1]), "more than dim 1"),
        ),
    ]
}

pub(super) fn quantised() -> Vec<OpCase> {
    let f8 = |sizes: &[u64]| Type::of(DType::F8E4M3, sizes);
    let (x, w, xs, ws) = (f8(&[2, 6, 8]), f8(&[8, 12]), f(&[2, 6, 2]), f(&[2, 3]));
    let product = Einsum::new("b s h, h n -> b s n").unwrap().scaled(DType::BF16).unwrap();
    let weight = Einsum::new("b s h, b s n -> h n").unwrap().scaled(DType::F32).unwrap();
    let (dy, rows, columns) = (f8(&[2, 6, 12]), f(&[2, 2, 8]), f(&[2, 2, 12]));
    let block = |sizes: &[u64]| AbsMax { block: sizes.iter().map(|&size| (size > 0).then_some(size)).collect() };
    vec![
        case(block(&[1, 1, 4]), &[&bf16(&[2, 6, 8])], &[&xs], (0, bf16(&[2, 6, 9]), "do not divide")),
        case(block(&[0, 0]), &[&f(&[8, 12])], &[&f(&[1, 1])], (0, f(&[8]), "2 sizes")),
        case(ScaleFor { to: DType::F8E5M2 }, &[&xs], &[&xs], (0, bf16(&[2]), "`max`")),
        case(Exponents, &[&bf16(&[2, 6, 8])], &[&f(&[256])], (0, i(&[2]), "float")),
        case(Ages, &[&f(&[256]), &f(&[256]), &f(&[])], &[&f(&[256])], (1, f(&[2]), "`seen`")),
        case(DelayedScale { to: DType::F8E4M3, within: 16 }, &[&f(&[256])], &[&f(&[])], (0, f(&[16]), "`ages`")),
        case(Quantise { to: DType::F8E4M3 }, &[&bf16(&[2, 6, 8]), &xs], &[&x], (1, f(&[2, 6, 3]), "do not divide")),
        case(product.clone(), &[&x, &w, &xs, &ws], &[&bf16(&[2, 6, 12])], (3, f(&[4, 3]), "two sizes")),
        case(product, &[&x, &w, &f(&[1, 1, 1]), &f(&[1, 1])], &[&bf16(&[2, 6, 12])], (0, bf16(&[2, 6, 8]), "8 bits")),
        case(weight, &[&x, &dy, &rows, &columns], &[&f(&[8, 12])], (2, bf16(&[2, 2, 8]), "f32")),
    ]
}

fn selections() -> Vec<OpCase> {
    let frame = Frame { dim: 1, size: 3, stride: 2, dilation: 1 };
    let [all, shared] = [Selected { dim: 1, batch: 0 }, Selected { dim: 2, batch: 1 }];
    let (x, windows, whole) = (f(&[2, 7, 5]), f(&[2, 3, 3, 5]), Dim::sized(7));
    let (index, taken, start) = (i(&[4, 3]), f(&[2, 4, 3, 5]), i(&[]));
    let (y, lists, listed) = (f(&[3, 2, 7, 5]), i(&[3, 4]), f(&[3, 2, 4, 5]));
    let (slice, pad) = (DynamicSlice { dim: 1, length: 2 }, DynamicPad { dim: 1, whole: whole.clone() });
    let compare = [CompareKind::Less, CompareKind::LessEqual, CompareKind::Equal];
    let mut cases = vec![
        case(Reverse { dim: 1 }, &[&x], &[&x], (0, f(&[2]), "no dim 1")),
        case(Windows { frame }, &[&x], &[&windows], (0, f(&[2, 2, 5]), "fits")),
        case(Fold { frame, whole: whole.clone() }, &[&windows], &[&x], (0, f(&[2, 2, 3, 5]), "windows")),
        case(Take { at: all }, &[&x, &index], &[&taken], (1, f(&[4, 3]), "`index`")),
        case(Take { at: shared }, &[&y, &lists], &[&listed], (1, i(&[2, 4]), "first 1 dims")),
        case(ScatterAdd { at: all, whole: whole.clone() }, &[&taken, &index], &[&x], (1, i(&[3, 4]), "indices")),
        case(ScatterAdd { at: shared, whole }, &[&listed, &lists], &[&y], (0, f(&[3]), "no dim 2")),
        case(slice, &[&x, &start], &[&f(&[2, 2, 5])], (1, i(&[1]), "`start`")),
        case(pad, &[&f(&[2, 2, 5]), &start], &[&x], (0, f(&[2, 8, 5]), "range")),
        case(Select { not: false }, &[&i(&[2, 3]), &f(&[2, 3]), &f(&[2, 3])], &[&f(&[2, 3])], (2, f(&[3]), "`b`")),
        case(Iota { dim: 1, dims: dims(&[2, 3]), dtype: DType::I32 }, &[], &[&i(&[2, 3])], (0, f(&[2]), "no operands")),
        case(Select { not: true }, &[&i(&[2, 3]), &f(&[2, 3])], &[&f(&[2, 3])], (0, f(&[2, 3]), "`mask`")),
    ];
    cases.extend(compare.map(|kind| case(Compare(kind), &[&x, &x], &[&i(&[2, 7, 5])], (1, i(&[2, 7, 5]), "`b`"))));
    cases
}

fn norms() -> Vec<OpCase> {
    let (x, row, h) = (bf16(&[2, 3, 8]), f(&[2, 3]), bf16(&[8]));
    let wrong = |operand, name| (operand, f(&[7]), name);
    vec![
        case(RmsNorm { eps: 1e-5 }, &[&x, &h], &[&x, &row], wrong(1, "`gamma`")),
        case(RmsNormDx, &[&x, &h, &row, &x], &[&x], wrong(2, "`rstd`")),
        case(RmsNormDgamma, &[&x, &row, &x], &[&h], wrong(2, "`dy`")),
        case(LayerNorm { eps: 1e-5 }, &[&x, &h, &h], &[&x, &row, &row], wrong(2, "`beta`")),
        case(LayerNormDx, &[&x, &h, &row, &row, &x], &[&x], wrong(2, "`mean`")),
        case(LayerNormDgamma, &[&x, &row, &row, &x], &[&h], wrong(1, "`mean`")),
        case(Softmax, &[&x], &[&x], (0, f(&[]), "scalar")),
        case(SoftmaxGrad, &[&x, &x], &[&x], wrong(1, "`dy`")),
    ]
}

pub(super) fn heads() -> Vec<OpCase> {
    let (b, s, t, g, r, d, c) = (2, 4, 6, 2, 3, 8, 10);
    let (q, k, v) = (f(&[b, s, g, r, d]), f(&[b, t, g, d]), f(&[b, t, g, c]));
    let (out, lse) = (f(&[b, s, g, r, c]), f(&[b, s, g, r]));
    let (rows, keys, sink) = (i(&[b, s]), i(&[b, t]), f(&[g, r]));
    let forward = [&q, &k, &v, &rows, &keys, &rows, &keys];
    let backward = [&q, &k, &v, &out, &lse, &out, &rows, &keys, &rows, &keys];
    let rope = |inverse| Rope { theta: 1e4, scaling: None, turned: None, gain: 1.0, inverse };
    let scaled = |scaling| Rope { scaling: Some(scaling), ..rope(true) };
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 };
    let lengths = Scaling::Lengths { short: vec![1.0; 4].into(), long: vec![2.0; 4].into(), context: 3 };
    let attention = AttentionSettings::new(0.125, true);
    let gradient = AttentionSettings::new(0.125, false);
    let with_sink = Attention(attention.clone());
    let near = AttentionSettings { window: Some(4), softcap: Some(50.0), ..attention.clone() };
    let dropout = Some(Dropout { p: 0.1, path: "layer.o".to_string(), piece: None });
    vec![
        case(rope(false), &[&q, &rows], &[&q], (0, f(&[b, s, 7]), "even")),
        case(rope(true), &[&f(&[b, s, d]), &rows], &[&f(&[b, s, d])], (1, i(&[s, b]), "`pos`")),
        case(Attention(attention.clone()), &forward, &[&out, &lse], (1, f(&[b, t, g, c]), "`k`")),
        case(AttentionGrad(gradient.clone()), &backward, &[&q, &k, &v], (4, f(&[b, s, g]), "`lse`")),
        case(
            Attention(AttentionSettings { dropout: dropout.clone(), ..attention }),
            &forward,
            &[&out, &lse],
            (2, f(&[b, t, c]), "b, t, g, c"),
        ),
        case(
            AttentionGrad(AttentionSettings { dropout, ..gradient }),
            &backward,
            &[&q, &k, &v],
            (5, f(&[b, s]), "`dout`"),
        ),
        case(scaled(Scaling::Linear { factor: 2.5 }), &[&q, &rows], &[&q], (0, f(&[b, s]), "rank")),
        case(scaled(llama3), &[&q, &rows], &[&q], (1, f(&[b, s]), "`pos`")),
        case(scaled(lengths), &[&q, &rows, &rows], &[&q], (2, i(&[s, b]), "`len`")),
        case(Attention(near.clone()), &forward, &[&out, &lse], (3, i(&[b, t]), "`qpos`")),
        case(AttentionGrad(near), &backward, &[&q, &k, &v], (9, i(&[b, s]), "`kseg`")),
        case(with_sink, &[&forward[..], &[&sink]].concat(), &[&out, &lse], (7, f(&[g]), "`sink`")),
    ]
}

/// Scans of each kind, and short convolutions.
fn scans() -> Vec<OpCase> {
    let (b, s, g, r, k, c) = (2, 6, 3, 2, 4, 5);
    let (q, v, pos) = (f(&[b, s, g, k]), f(&[b, s, g, r, c]), i(&[b, s]));
    let (heads, by_key, rates) = (f(&[b, s, g, r]), f(&[b, s, g, r, k]), f(&[g, r, k]));
    let settings = |kind| ScanSettings { kind, scale: 0.5, chunk: 64, block: None };
    let [linear, delta, selective] = ScanKind::ALL.map(settings);
    let [linear_blocks, delta_blocks, selective_blocks] = [linear, delta, selective].map(|of| of.in_blocks(Some(2)));
    let state = f(&[b, 3, g, r, k, c]);
    let by_row = f(&[b, 3, g, r, k]);
    let matrix = f(&[b, 3, g, r, k, k]);
    let before = bf16(&[b, 3, 2, g, k]);
    let (x, w) = (bf16(&[b, s, g, k]), bf16(&[g, k, 3]));
    vec![
        case(Scan(linear), &[&q, &q, &v, &heads, &pos], &[&v], (3, f(&[b, s, g]), "`decay`")),
        case(Scan(linear), &[&q, &q, &v, &by_key, &pos], &[&v], (4, f(&[b, s]), "`pos`")),
        case(Scan(delta), &[&q, &q, &v, &heads, &heads, &pos], &[&v], (4, f(&[b, s, g]), "`beta`")),
        case(Scan(selective), &[&q, &q, &v, &heads, &rates, &pos], &[&v], (4, f(&[g, r]), "`rates`")),
        case(
            ScanGrad(linear),
            &[&q, &q, &v, &by_key, &pos, &v],
            &[&q, &q, &v, &by_key],
            (5, f(&[b, s, g, r]), "`dout`"),
        ),
        case(
            ScanGrad(delta),
            &[&q, &q, &v, &heads, &heads, &pos, &v],
            &[&q, &q, &v, &heads, &heads],
            (0, f(&[b, s, g, c]), "`q`"),
        ),
        case(
            ScanGrad(selective),
            &[&q, &q, &v, &heads, &rates, &pos, &v],
            &[&q, &q, &v, &heads, &rates],
            (2, f(&[b, s, g, c]), "`v`"),
        ),
        case(Scan(linear_blocks), &[&q, &q, &v, &heads, &pos, &state], &[&v], (5, f(&[b, 2, g, r, k, c]), "`start`")),
        case(
            ScanGrad(delta_blocks),
            &[&q, &q, &v, &heads, &heads, &pos, &state, &v, &state],
            &[&q, &q, &v, &heads, &heads],
            (8, f(&[b, s, g, r, k, c]), "`dend`"),
        ),
        case(ScanState(linear_blocks), &[&q, &v, &heads, &pos], &[&state, &f(&[b, 3, g, r])], (3, i(&[b, 3]), "`pos`")),
        case(
            ScanState(delta_blocks),
            &[&q, &v, &heads, &heads, &pos],
            &[&state, &matrix],
            (3, f(&[b, s, g]), "`beta`"),
        ),
        case(
            ScanState(selective_blocks),
            &[&q, &v, &heads, &rates, &pos],
            &[&state, &by_row],
            (3, f(&[g, k]), "`rates`"),
        ),
        case(ScanDstart(linear_blocks), &[&q, &q, &by_key, &pos, &v], &[&state], (1, f(&[b, s, g, k + 1]), "`q`")),
        case(Carry { reverse: false }, &[&state, &matrix], &[&state], (1, f(&[b, 3, g, r, c, c]), "`through`")),
        case(Carry { reverse: true }, &[&state, &by_row], &[&state], (1, f(&[b, 3, g]), "`through`")),
        case(ShortConv::default(), &[&x, &w, &pos], &[&x], (1, bf16(&[g, 3]), "`w`")),
        case(ShortConvDx::default(), &[&x, &w, &pos], &[&x], (2, i(&[s, b]), "`pos`")),
        case(ShortConvDw { taps: Dim::sized(3), block: None }, &[&x, &x, &pos], &[&w], (1, bf16(&[b, s, g]), "`dy`")),
        case(ShortConv { block: Some(2) }, &[&x, &w, &pos, &before], &[&x], (3, bf16(&[b, 3, 3, g, k]), "`start`")),
        case(ShortConvDx { block: Some(2) }, &[&x, &w, &pos, &before], &[&x], (3, bf16(&[b, 2, 2, g, k]), "`dend`")),
        case(
            ShortConvDw { taps: Dim::sized(3), block: Some(2) },
            &[&x, &x, &pos, &before],
            &[&w],
            (3, f(&[b, 3, 2, g, k]), "`start`"),
        ),
        case(ShortConvDstart { block: 2 }, &[&x, &w, &pos], &[&before], (1, bf16(&[g, k, 9]), "taps")),
    ]
}

pub(super) fn vocabulary() -> Vec<OpCase> {
    let (logits, labels, row) = (bf16(&[2, 3, 9]), i(&[2, 3]), f(&[2, 3]));
    let rows = Dim::sized(9);
    vec![
        case(Embedding::default(), &[&labels, &f(&[9, 4])], &[&f(&[2, 3, 4])], (0, row.clone(), "`ids`")),
        case(
            EmbeddingGrad { rows, pad: Some(3) },
            &[&labels, &f(&[2, 3, 4])],
            &[&f(&[9, 4])],
            (1, f(&[2, 4]), "`ids`"),
        ),
        case(CrossEntropy, &[&logits, &labels], &[&f(&[]), &row], (1, row.clone(), "`labels`")),
        case(CrossEntropyGrad, &[&logits, &labels, &row, &f(&[])], &[&logits], (3, f(&[1]), "`dloss`")),
        case(SumExp, &[&logits, &row], &[&row], (1, bf16(&[2, 3]), "`max`")),
        case(Pick, &[&logits, &labels], &[&row], (1, i(&[2]), "`labels`")),
        case(TokenLoss, &[&row, &row, &labels], &[&f(&[])], (1, f(&[2]), "`picked`")),
        case(
            Jitter { width: 0.1, path: "layer.router".to_string(), piece: None },
            &[&f(&[2, 4])],
            &[&f(&[2, 4])],
            (0, f(&[2]), "sequence"),
        ),
        case(
            Dropout { p: 0.1, path: "layer.attn".to_string(), piece: None },
            &[&f(&[2, 4])],
            &[&f(&[2, 4])],
            (0, f(&[]), "batch"),
        ),
    ]
}

fn experts() -> Vec<OpCase> {
    let (b, q, t, h, k, e, c) = (2, 3, 4, 5, 2, 6, 3);
    let (x, y) = (f(&[b, q, t, h]), f(&[b, q, e, c, h]));
    let (index, weights, count) = (i(&[b, q, t, k]), f(&[b, q, t, k]), i(&[b, q, e]));
    let scores = f(&[b, q, t, e]);
    let limit = GroupLimit { groups: 3, from: 2, by: 2 };
    let dispatch = Dispatch { experts: Dim::sized(e), capacity: Dim::sized(c) };
    vec![
        case(TopK { k, limit: None }, &[&scores], &[&weights, &index], (0, f(&[1]), "cannot be chosen")),
        case(
            TopK { k, limit: Some(limit) },
            &[&scores, &f(&[e])],
            &[&weights, &index],
            (0, f(&[b, q, t, 4]), "`bias`"),
        ),
        case(TopKGrad { experts: Dim::sized(e) }, &[&index, &weights], &[&scores], (0, weights.clone(), "`index`")),
        case(ChoiceCount { rate: None }, &[&index, &f(&[e])], &[&f(&[e])], (1, bf16(&[e]), "`record`")),
        case(ChoiceCount { rate: Some(0.1) }, &[&index, &f(&[e]), &f(&[e])], &[&f(&[e])], (2, f(&[4]), "`bias`")),
        case(dispatch.clone(), &[&x, &index], &[&y, &count], (1, i(&[b, q, k]), "`x`")),
        case(dispatch, &[&x, &index, &weights], &[&y, &count], (2, index.clone(), "`weights`")),
        case(Combine, &[&y, &index], &[&x], (0, f(&[q, e, c, h]), "`y`")),
        case(Combine, &[&y, &index, &weights], &[&x], (1, i(&[k]), "rank is 1")),
        case(CombineDw, &[&x, &y, &index], &[&weights], (0, f(&[b, q, t, 1]), "`x`")),
    ]
}

fn sparse() -> Vec<OpCase> {
    let (b, s, t, n, d, j) = (2, 4, 6, 3, 8, 5);
    let (q, k, w, index) = (f(&[b, s, n, d]), f(&[b, t, d]), f(&[b, s, n]), i(&[b, s, j]));
    let (rows, keys, row) = (i(&[b, s]), i(&[b, t]), f(&[b, s, j]));
    let (g, r, c) = (2, 3, 10);
    let (aq, ak, av) = (f(&[b, s, g, r, d]), f(&[b, t, g, d]), f(&[b, t, g, c]));
    let (out, lse, scale) = (f(&[b, s, g, r, c]), f(&[b, s, g, r]), 0.125);
    vec![
        case(SelectKeys { keys: j }, &[&q, &k, &w, &rows, &keys, &rows, &keys], &[&index], (4, i(&[b, s]), "`kpos`")),
        case(IndexScores, &[&q, &k, &w, &index], &[&row], (1, f(&[b, t, 7]), "`k`")),
        case(IndexScoresGrad, &[&q, &k, &w, &index, &row], &[&q, &k, &w], (4, f(&[b, s, t]), "`dscores`")),
        case(SparseAttention { scale }, &[&aq, &ak, &av, &index], &[&out, &lse], (3, i(&[b, t, j]), "`index`")),
        case(
            SparseAttentionGrad { scale },
            &[&aq, &ak, &av, &out, &lse, &out, &index],
            &[&aq, &ak, &av],
            (5, f(&[b, s]), "`dout`"),
        ),
        case(KeyMass { scale }, &[&aq, &ak, &lse, &index], &[&row], (2, f(&[b, s, g]), "`lse`")),
        case(IndexLoss, &[&row, &row, &index], &[&f(&[])], (1, f(&[b, s, t]), "`mass`")),
        case(IndexLossGrad, &[&row, &row, &index, &f(&[])], &[&row], (3, f(&[1]), "`dloss`")),
    ]
}

fn updates() -> Vec<OpCase> {
    let (w, one) = (f(&[2, 3]), f(&[]));
    let adamw = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 };
    let state = [&w, &w, &w, &w, &one, &one, &one];
    let sgd = |momentum, nesterov| Sgd { momentum, nesterov, weight_decay: 0.0 };
    vec![
        case(SumSquares, &[&w], &[&one], (1, w.clone(), "takes 1")),
        case(adamw, &state, &[&w, &w, &w], (3, f(&[3, 2]), "`v`")),
        case(sgd(0.0, false), &[&w, &w, &one, &one], &[&w], (3, f(&[1]), "`lr`")),
        case(sgd(0.9, false), &[&w, &w, &w, &one, &one], &[&w, &w], (2, bf16(&[2, 3]), "`m`")),
        case(sgd(0.9, true), &[&w, &w, &w, &one, &one], &[&w, &w], (2, bf16(&[2, 3]), "`m`")),
        case(ClipFactor { max: 1.0 }, &[&one], &[&one], (0, w.clone(), "scalar")),
    ]
}

pub(super) fn cases() -> Vec<OpCase> {
    [
        elementwise(),
        shapes(),
        quantised(),
        selections(),
        norms(),
        heads(),
        scans(),
        vocabulary(),
        experts(),
        sparse(),
        updates(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
