//! Every op: its result types, an operand list that it refuses, its rule on these tensors, its attributes through the parser,
//! the types of its gradient and of its expansion. The table must name every op.

use meshwright_ir::entity::EntityRef;
use meshwright_ir::graph::Block;
use meshwright_ir::ids::{AxisId, Value};
use meshwright_ir::mesh::Axes;
use meshwright_ir::ops::*;
use meshwright_ir::rule::{Instance, Rule};
use meshwright_ir::types::{DType, Dim, PartialKind, Type};
use std::collections::BTreeSet;

/// An op on operands that fit, and what is wrong when one of them is replaced.
struct Case {
    op: Op,
    operands: Vec<Type>,
    results: Vec<Type>,
    /// The index of an operand, the type that replaces it, and a word of the error. The index after the last appends an operand.
    wrong: (usize, Type, &'static str),
}

fn f(sizes: &[u64]) -> Type {
    Type::of(DType::F32, sizes)
}

fn i(sizes: &[u64]) -> Type {
    Type::of(DType::I32, sizes)
}

fn bf16(sizes: &[u64]) -> Type {
    Type::of(DType::BF16, sizes)
}

fn case(op: impl Into<Op>, operands: &[&Type], results: &[&Type], wrong: (usize, Type, &'static str)) -> Case {
    let owned = |types: &[&Type]| types.iter().map(|&ty| ty.clone()).collect();
    Case { op: op.into(), operands: owned(operands), results: owned(results), wrong }
}

fn dims(sizes: &[u64]) -> Vec<Dim> {
    f(sizes).dims
}

fn elementwise() -> Vec<Case> {
    use UnaryKind::*;
    let kinds = [
        Neg,
        Exp,
        Log,
        Sqrt,
        Rsqrt,
        Recip,
        Square,
        Tanh,
        Erf,
        Sin,
        Cos,
        Floor,
        Sigmoid,
        Silu,
        Gelu,
        GeluErf,
        ReluSquared,
        Scale(0.5),
        Shift(1e-6),
        AtMost(1.0),
        AtLeast(0.0),
    ];
    let unary = kinds.map(|kind| case(Unary(kind), &[&f(&[2, 3])], &[&f(&[2, 3])], (0, i(&[2, 3]), "float")));
    let cast = |from: Type| case(Unary(Cast(DType::BF16)), &[&from], &[&bf16(&[2, 3])], (1, f(&[2, 3]), "one operand"));
    let kinds = [
        BinaryKind::Add,
        BinaryKind::Sub,
        BinaryKind::Mul,
        BinaryKind::Div,
        BinaryKind::Max,
        BinaryKind::Min,
        BinaryKind::SigmoidGrad,
        BinaryKind::SiluGrad,
        BinaryKind::GeluGrad,
        BinaryKind::GeluErfGrad,
        BinaryKind::ReluSquaredGrad,
    ];
    let x = f(&[2, 3]);
    let binary = kinds.map(|kind| case(Binary::of(kind), &[&x, &x], &[&x], (1, f(&[3]), "broadcast")));
    let spread = Binary::spread(BinaryKind::Mul, "a b, b -> a b").unwrap();
    let spread = case(spread, &[&f(&[2, 3]), &f(&[3])], &[&f(&[2, 3])], (1, f(&[4]), "`b` is 3"));
    unary.into_iter().chain(binary).chain([spread, cast(f(&[2, 3])), cast(i(&[2, 3]))]).collect()
}

fn shapes() -> Vec<Case> {
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

fn quantised() -> Vec<Case> {
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

fn selections() -> Vec<Case> {
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

fn norms() -> Vec<Case> {
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

fn heads() -> Vec<Case> {
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

fn vocabulary() -> Vec<Case> {
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
            Dropout { p: 0.1, path: "layer.attn".to_string(), piece: None },
            &[&f(&[2, 4])],
            &[&f(&[2, 4])],
            (0, f(&[]), "batch"),
        ),
    ]
}

fn experts() -> Vec<Case> {
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
        case(dispatch.clone(), &[&x, &index], &[&y, &count], (1, i(&[b, q, k]), "`x`")),
        case(dispatch, &[&x, &index, &weights], &[&y, &count], (2, index.clone(), "`weights`")),
        case(Combine, &[&y, &index], &[&x], (0, f(&[q, e, c, h]), "`y`")),
        case(Combine, &[&y, &index, &weights], &[&x], (1, i(&[k]), "rank is 1")),
        case(CombineDw, &[&x, &y, &index], &[&weights], (0, f(&[b, q, t, 1]), "`x`")),
    ]
}

fn updates() -> Vec<Case> {
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

fn cases() -> Vec<Case> {
    [elementwise(), shapes(), quantised(), selections(), norms(), heads(), vocabulary(), experts(), updates()]
        .into_iter()
        .flatten()
        .collect()
}

fn refs(types: &[Type]) -> Vec<&Type> {
    types.iter().collect()
}

/// A block with values of these types, before any statement.
fn block_of(types: &[Type]) -> (Block, Vec<Value>) {
    let mut block = Block::default();
    let values = types.iter().map(|ty| block.add_value("", ty.clone())).collect();
    (block, values)
}

fn instance(case: &Case) -> Instance {
    let (operands, results) = (refs(&case.operands), refs(&case.results));
    let text = case.op.def().unwrap().rule(&operands, &results);
    let rule = Rule::parse(&text).unwrap();
    rule.instantiate(&operands, &results).unwrap_or_else(|why| panic!("{}: `{text}` {why}", case.op.name()))
}

#[test]
fn every_op_is_in_the_table() {
    let covered: BTreeSet<_> = cases().iter().map(|case| case.op.name()).collect();
    assert_eq!(covered, names().into_iter().collect());
    assert_eq!(names().len(), covered.len(), "a name stands twice");
}

#[test]
fn results_are_inferred() {
    for case in cases() {
        assert_eq!(case.op.infer(&refs(&case.operands)), Ok(case.results), "{}", case.op.name());
    }
}

#[test]
fn wrong_operands_are_refused() {
    for case in cases() {
        let takes_none = case.operands.is_empty();
        let (place, ty, word) = case.wrong;
        let mut operands = case.operands.clone();
        operands.truncate(place);
        operands.push(ty);
        operands.extend(case.operands.into_iter().skip(place + 1));
        let why = case.op.infer(&refs(&operands)).expect_err(case.op.name());
        assert!(why.contains(word), "{}: {why}", case.op.name());
        assert!(takes_none || case.op.infer(&[]).is_err(), "{} without operands", case.op.name());
    }
}

#[test]
fn attributes_are_read_back() {
    for case in cases() {
        let attrs = case.op.attrs().into_iter().map(|(name, attr)| (name.to_string(), attr)).collect();
        let mut attrs = Attrs(attrs);
        let operands = refs(&case.operands);
        let op = Op::parse(case.op.name(), &mut attrs, &Shapes { operands: &operands, results: &case.results });
        assert_eq!(op, Ok(case.op));
        assert!(attrs.0.is_empty(), "left over: {attrs:?}");
    }
}

#[test]
fn rules_fit_and_linear_operands_exist() {
    for case in cases() {
        let instance = instance(&case);
        let shapes = |types: &[Type]| types.iter().map(Type::rank).collect::<Vec<_>>();
        assert_eq!(instance.operands.iter().map(Vec::len).collect::<Vec<_>>(), shapes(&case.operands));
        assert_eq!(instance.results.iter().map(Vec::len).collect::<Vec<_>>(), shapes(&case.results));
        let linear = case.op.facts().linear.groups(case.operands.len());
        assert!(linear.iter().flatten().all(|&operand| operand < case.operands.len()), "{}", case.op.name());
    }
}

/// Ops whose cotangent nobody asks for: gradients, updates, and what exists only after differentiation.
const WITHOUT_GRADIENT: [&str; 30] = [
    "exponents",
    "ages",
    "delayed_scale",
    "absmax",
    "scale_for",
    "quantise",
    "less",
    "less_equal",
    "equal",
    "sigmoid_grad",
    "silu_grad",
    "gelu_grad",
    "gelu_erf_grad",
    "relu_squared_grad",
    "rms_norm_dx",
    "rms_norm_dgamma",
    "layer_norm_dx",
    "layer_norm_dgamma",
    "softmax_grad",
    "attention_grad",
    "embedding_grad",
    "cross_entropy_grad",
    "sum_exp",
    "pick",
    "token_loss",
    "sum_squares",
    "adamw",
    "sgd",
    "top_k_grad",
    "combine_dw",
];

fn has_gradient(case: &Case) -> bool {
    let is_late = matches!(&case.op, Op::Kernel(KernelOp::Einsum(op)) if op.scaled.is_some() || op.ragged.is_some());
    !WITHOUT_GRADIENT.contains(&case.op.name()) && !is_late
}

#[test]
fn cotangents_have_the_types_of_operands() {
    for case in cases() {
        let (mut block, operands) = block_of(&case.operands);
        let results: Vec<Value> = case.results.iter().map(|ty| block.add_value("", ty.clone())).collect();
        let mut given = vec![None; results.len()];
        given[0] = Some(block.add_value("", case.results[0].clone()));
        // A bias of top_k only chooses.
        let chooses = |place: usize| case.op.name() == "top_k" && place == 1;
        let needed: Vec<bool> =
            case.operands.iter().enumerate().map(|(place, ty)| ty.dtype.is_float() && !chooses(place)).collect();
        let call = Cotangents { operands: &operands, results: &results, given: &given, needed: &needed };
        let mut b = Builder::new(&mut block);
        let gradient = case.op.def().unwrap().gradient(&mut b, &call);
        let name = case.op.name();
        let expected = has_gradient(&case) && name != "clip_factor";
        assert_eq!(gradient.is_ok(), expected, "{name}: {gradient:?}");
        for (operand, value) in gradient.into_iter().flatten().enumerate() {
            assert_eq!(value.is_some(), needed[operand], "{name}: operand {operand}");
            assert!(value.is_none_or(|v| b.ty(v).same_tensor(&case.operands[operand])), "{name}: operand {operand}");
        }
    }
}

#[test]
fn a_zero_cotangent_emits_nothing() {
    for case in cases().into_iter().filter(|case| case.op.name() != "clip_factor") {
        if !has_gradient(&case) {
            continue;
        }
        let (mut block, operands) = block_of(&case.operands);
        let results: Vec<Value> = case.results.iter().map(|ty| block.add_value("", ty.clone())).collect();
        let (given, needed) = (vec![None; results.len()], vec![true; operands.len()]);
        let call = Cotangents { operands: &operands, results: &results, given: &given, needed: &needed };
        let mut b = Builder::new(&mut block);
        assert_eq!(case.op.def().unwrap().gradient(&mut b, &call), Ok(vec![None; operands.len()]));
        assert!(b.stmts.is_empty());
    }
}

#[test]
fn expansions_give_the_same_types_without_whole_dims() {
    let mut expanded = BTreeSet::new();
    for case in cases() {
        let (mut block, operands) = block_of(&case.operands);
        let mut b = Builder::new(&mut block);
        let Some(results) = case.op.def().unwrap().expand(&mut b, &operands) else { continue };
        expanded.insert(case.op.name());
        let types: Vec<Type> = results.unwrap().into_iter().map(|value| b.ty(value).clone()).collect();
        assert_eq!(types, case.results, "{}", case.op.name());
        let steps = std::mem::take(&mut b.stmts);
        for stmt in steps {
            let types = |values: &[Value]| values.iter().map(|&v| b.ty(v).clone()).collect::<Vec<_>>();
            let (operands, results) = (types(&stmt.operands), types(&stmt.results));
            let step = Case { op: stmt.op, operands, results, wrong: (0, f(&[]), "") };
            assert!(instance(&step).factors.iter().all(|factor| !factor.replicated), "{}", step.op.name());
        }
    }
    let wanted = [
        "clip_factor",
        "cross_entropy",
        "layer_norm",
        "layer_norm_dx",
        "rms_norm",
        "rms_norm_dx",
        "softmax",
        "softmax_grad",
    ];
    assert_eq!(expanded, wanted.into_iter().collect());
}

#[test]
fn attention_grad_is_partial_for_queries() {
    let case = heads().remove(3);
    let instance = instance(&case);
    for (name, owes) in [("b", false), ("s", true), ("g", false), ("r", true)] {
        let factor = instance.factors.iter().position(|factor| factor.name == name).unwrap();
        let mut axes = vec![Axes::none(); instance.factors.len()];
        axes[factor] = Axes::one(AxisId::new(0));
        assert!(!instance.factors[factor].replicated, "{name}");
        let partials = [0, 1, 2].map(|result| instance.partial(result, &axes).is_some());
        assert_eq!(partials, [false, owes, owes], "{name}");
    }
}

#[test]
fn reshape_keeps_the_dims_around_its_group() {
    let rule = |from: &[u64], to: &[u64]| Reshape { dims: dims(to) }.rule(&[&f(from)], &[&f(to)]);
    assert_eq!(rule(&[2, 3, 4, 5], &[2, 12, 5]), "m0 i0 i1 n0 -> m0 (i0 i1) n0");
    assert_eq!(rule(&[24], &[2, 3, 4]), "(i0 i1 i2) -> i0 i1 i2");
    let refused = |from: &[u64], to: &[u64]| Reshape { dims: dims(to) }.infer(&[&f(from)]).is_err();
    assert!(refused(&[2, 3], &[7]) && refused(&[2, 3], &[2]) && refused(&[], &[2]));
    assert!(refused(&[u64::MAX, 4], &[7]) && refused(&[u64::MAX, 4], &[4, u64::MAX]));
    let taken = |from: &[u64], to: &[u64]| Reshape { dims: dims(to) }.infer(&[&f(from)]).is_ok();
    assert!(taken(&[2, 3], &[3, 2]) && taken(&[1], &[]) && taken(&[2, 2, 3, 3], &[4, 9]));
}

#[test]
fn the_gradient_of_a_concat_is_slices_of_their_places() {
    let (mut block, operands) = block_of(&[f(&[2, 4]), f(&[2, 1])]);
    let results = [block.add_value("", f(&[2, 5]))];
    let given = [Some(block.add_value("", f(&[2, 5])))];
    let call = Cotangents { operands: &operands, results: &results, given: &given, needed: &[false, true] };
    let mut b = Builder::new(&mut block);
    let cotangents = Concat { dim: 1 }.gradient(&mut b, &call).unwrap();
    assert!(cotangents[0].is_none() && cotangents[1].is_some());
    assert_eq!(b.stmts.len(), 1);
    assert_eq!(b.stmts[0].op, Slice { dim: 1, start: 4, length: 1 }.into());
}

#[test]
fn cotangents_of_statistics_are_refused() {
    for case in cases() {
        let name = case.op.name();
        if !["rms_norm", "layer_norm", "attention", "cross_entropy"].contains(&name) {
            continue;
        }
        let (mut block, operands) = block_of(&case.operands);
        let results: Vec<Value> = case.results.iter().map(|ty| block.add_value("", ty.clone())).collect();
        let given: Vec<Option<Value>> = results.iter().map(|&value| Some(value)).collect();
        let needed = vec![true; operands.len()];
        let call = Cotangents { operands: &operands, results: &results, given: &given, needed: &needed };
        let why = case.op.def().unwrap().gradient(&mut Builder::new(&mut block), &call).unwrap_err();
        assert!(why.contains("is not defined"), "{name}: {why}");
    }
}

#[test]
fn shards_have_whole_blocks_or_parts_of_one() {
    let rule = |case: &Case| case.op.def().unwrap().rule(&refs(&case.operands), &refs(&case.results));
    let rules: Vec<String> = quantised().iter().map(rule).collect();
    assert_eq!(
        rules,
        [
            "a0 a1 (a2 a2'+max=4) -> a0 a1 a2",
            "a0+max a1+max -> 1 1",
            "* -> *",
            "*m+ -> 256",
            "*, *, () -> *",
            "256 -> ()",
            "a0 a1 (a2 a2'=4), a0 a1 a2 -> a0 a1 (a2 a2'=4)",
            "b s (h+ h'+=4), (h+ h'+=4) (n n'=4), b s h, h n -> b s (n n'=4)",
            "b s h+, h+ n, 1 1 1, 1 1 -> b s n",
            "b+ (s+ s'+=3) h, b+ (s+ s'+=3) n, b+ s h, b+ s n -> h n",
        ]
    );
    let product = instance(&quantised()[7]);
    let partial = |name: &str| product.factors.iter().any(|factor| factor.name == name && factor.partial.is_some());
    assert!(partial("h") && partial("h'") && !partial("n'"));
}

#[test]
fn flops_of_contractions_are_exact() {
    let work = |op: Op, operands: &[Type], results: &[Type]| op.def().unwrap().work(&refs(operands), &refs(results));
    let einsum = Einsum::new("b m k, b k n -> b m n").unwrap();
    assert_eq!(work(einsum.into(), &[f(&[2, 3, 4]), f(&[2, 4, 5])], &[f(&[2, 3, 5])]).flops, 2 * 2 * 3 * 4 * 5);
    let pairs = 2 * 4 * 6 * 2 * 3;
    let flops_of = |case: &Case| work(case.op.clone(), &case.operands, &case.results).flops;
    let heads = heads();
    assert_eq!(flops_of(&heads[2]), 2 * (pairs / 2) * (8 + 10));
    assert_eq!(flops_of(&heads[3]), 2 * pairs * (3 * 8 + 2 * 10));
    // Behind the two of six keys that come before the slice, causal attention has half.
    let on_piece = heads[2].op.extras().positioned.unwrap().on_piece(Piece { origin: 2, whole: 9 });
    assert_eq!(work(on_piece, &heads[2].operands, &heads[2].results).flops, 2 * (pairs * (2 + 6) / 2 / 6) * (8 + 10));
}

#[test]
fn slices_lie_within_their_sequence() {
    let placed = |case: &Case, piece| case.op.extras().positioned.unwrap().on_piece(piece).infer(&refs(&case.operands));
    let attention = &heads()[2];
    // Four queries, six keys.
    for (origin, whole, fits) in [(0, 6, true), (2, 6, true), (3, 6, false), (0, 5, false), (u64::MAX, 6, false)] {
        assert_eq!(placed(attention, Piece { origin, whole }).is_ok(), fits, "{origin} of {whole}");
    }
    let dropout = vocabulary().pop().unwrap();
    assert!(placed(&dropout, Piece { origin: 4, whole: 8 }).is_ok());
    assert!(placed(&dropout, Piece { origin: 5, whole: 8 }).is_err());
    let piece = Some(Piece { origin: 0, whole: 8 });
    assert!(Dropout { p: 0.1, path: String::new(), piece }.infer(&[&f(&[2])]).is_err(), "no sequence");
}

#[test]
fn a_probability_must_be_below_one() {
    for p in [-0.1, 1.0, f64::NAN] {
        let dropout = Dropout { p, path: String::new(), piece: None };
        assert!(dropout.infer(&[&f(&[2])]).is_err());
        let case = &heads()[2];
        assert!(Attention(AttentionSettings::new(1.0, true)).infer(&refs(&case.operands)).is_ok());
        let settings = AttentionSettings { dropout: Some(dropout), ..AttentionSettings::new(1.0, true) };
        assert!(Attention(settings).infer(&refs(&case.operands)).is_err());
    }
}
