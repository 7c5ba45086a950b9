//! Every op on some operands.

use super::{ints, reals};
use ir::ops::{Attr, Attrs, Binary, BinaryKind, Linear, Op, OpDef, Shapes, Unary, UnaryKind};
use ir::types::{DType, Type};
use meshwright_reference::Array;

/// Kind of an operand.
#[derive(Clone, Copy)]
pub(crate) enum Operand {
    /// Floats of this shape, about 1 in size.
    Real(&'static [u64]),
    /// Floats above 1/2.
    Positive(&'static [u64]),
    /// Integers from the first number to below the second.
    Int(&'static [u64], i32, i32),
}
use Operand::{Int, Positive, Real};

impl Operand {
    pub(crate) fn ty(self) -> Type {
        match self {
            Real(sizes) | Positive(sizes) => Type::of(DType::F32, sizes),
            Int(sizes, ..) => Type::of(DType::I32, sizes),
        }
    }

    /// Its numbers, by a name.
    pub(crate) fn array(self, name: &str) -> Array<f64> {
        match self {
            Real(sizes) => Array::Real(reals(name, sizes)),
            Positive(sizes) => Array::Real(reals(name, sizes).map(|x| 0.5 + x.abs())),
            Int(sizes, from, to) => Array::Int(ints(name, sizes, from, to)),
        }
    }
}

/// An op on operands.
pub(crate) struct Case {
    /// The op.
    pub(crate) op: Op,
    /// Its operands.
    pub(crate) operands: Vec<Operand>,
}

/// A case by the op's text; `stated` are the sizes of its result for ops that read them there.
fn case(name: &str, attrs: &[(&str, Attr)], operands: &[Operand], stated: &[u64]) -> Case {
    let types: Vec<Type> = operands.iter().map(|operand| operand.ty()).collect();
    let results = [Type::of(DType::F32, stated)];
    let shapes = Shapes { operands: &types.iter().collect::<Vec<_>>(), results: &results };
    let mut attrs = Attrs(attrs.iter().map(|(name, attr)| (name.to_string(), attr.clone())).collect());
    Case { op: Op::parse(name, &mut attrs, &shapes).unwrap(), operands: operands.to_vec() }
}

fn eq(text: &str) -> (&'static str, Attr) {
    ("eq", Attr::Str(text.to_string()))
}

fn float(name: &'static str, value: f64) -> (&'static str, Attr) {
    (name, Attr::Float(value))
}

fn int(name: &'static str, value: u64) -> (&'static str, Attr) {
    (name, Attr::int(value))
}

/// Elementwise functions that have a gradient: of any numbers, or of positive ones.
fn elementwise() -> Vec<Case> {
    use UnaryKind::{Log, Recip, Rsqrt, Sqrt};
    let argument = |kind: UnaryKind| match kind {
        Log | Sqrt | Rsqrt | Recip => Positive(&[3, 4]),
        _ => Real(&[3, 4]),
    };
    let unary = |&kind: &UnaryKind| Case { op: Unary(kind).into(), operands: vec![argument(kind)] };
    let mut cases: Vec<Case> = UnaryKind::ALL.iter().filter(|kind| !is_constant(**kind)).map(unary).collect();
    cases.push(Case { op: Unary(UnaryKind::Cast(DType::BF16)).into(), operands: vec![Real(&[2, 3])] });
    for &kind in BinaryKind::ALL.iter().filter(|kind| !is_slope(**kind)) {
        let [left, right] = ["a b, b -> a b", "b, a b -> a b"].map(|text| Binary::spread(kind, text).unwrap());
        cases.extend([
            Case { op: Binary::of(kind).into(), operands: vec![Real(&[3, 4]), Positive(&[3, 4])] },
            Case { op: left.into(), operands: vec![Real(&[3, 4]), Positive(&[4])] },
            Case { op: right.into(), operands: vec![Real(&[4]), Positive(&[3, 4])] },
        ]);
    }
    cases
}

/// True for functions that nothing flows back through.
fn is_constant(kind: UnaryKind) -> bool {
    matches!(kind, UnaryKind::Floor | UnaryKind::Stop)
}

/// True for the cotangent of a function, which has no gradient itself.
fn is_slope(kind: BinaryKind) -> bool {
    Binary::of(kind).facts().linear == Linear::Each(&[1])
}

/// Ops that have a gradient, on shapes without two equal sizes where they allow it.
pub(crate) fn differentiable() -> Vec<Case> {
    let dropout = [float("p", 0.4), ("path", Attr::Str("p".to_string()))];
    let jitter = [float("width", 0.4), ("path", Attr::Str("p".to_string()))];
    let frame = [int("dim", 1), int("size", 3), int("stride", 2), int("dilation", 2)];
    let mut cases = vec![
        case("einsum", &[eq("b s h, h g d -> b s g d")], &[Real(&[2, 3, 4]), Real(&[4, 5, 6])], &[]),
        case("einsum", &[eq("e a k, b e k -> b a e")], &[Real(&[2, 3, 4]), Real(&[5, 2, 4])], &[]),
        case("max", &[eq("a b, b -> a b")], &[Real(&[3, 4]), Real(&[4])], &[]),
        case("min", &[eq("b, a b -> a b")], &[Real(&[4]), Real(&[3, 4])], &[]),
        case("reduce_max", &[eq("a b c -> a c")], &[Real(&[2, 3, 4])], &[]),
        case("reduce_sum", &[eq("a b c -> b")], &[Real(&[2, 3, 4])], &[]),
        case("broadcast", &[eq("b -> a b c")], &[Real(&[3])], &[2, 3, 4]),
        case("permute", &[eq("a b c -> c a b")], &[Real(&[2, 3, 4])], &[]),
        case("reshape", &[], &[Real(&[2, 3, 4])], &[2, 12]),
        case("reshape", &[], &[Real(&[2, 12])], &[2, 3, 4]),
        case("reshape", &[], &[Real(&[2, 3, 4, 5])], &[6, 20]),
        case("reverse", &[int("dim", 1)], &[Real(&[2, 3, 4])], &[]),
        case("windows", &frame, &[Real(&[2, 9, 3])], &[]),
        case("fold", &frame, &[Real(&[2, 3, 3, 2])], &[2, 9, 2]),
        case("take", &[int("dim", 1)], &[Real(&[2, 5, 3]), Int(&[4], -1, 6)], &[]),
        case("take", &[int("dim", 2), int("batch", 1)], &[Real(&[2, 3, 5, 2]), Int(&[2, 4], -1, 6)], &[]),
        case("scatter_add", &[int("dim", 1)], &[Real(&[2, 4, 3]), Int(&[4], -1, 6)], &[2, 5, 3]),
        case("dynamic_slice", &[int("dim", 1), int("length", 2)], &[Real(&[2, 5, 3]), Int(&[], 0, 5)], &[]),
        case("dynamic_pad", &[int("dim", 1)], &[Real(&[2, 2, 3]), Int(&[], 0, 5)], &[2, 5, 3]),
        case("select", &[], &[Int(&[3, 4], 0, 2), Real(&[3, 4]), Real(&[3, 4])], &[]),
        case("select", &[("not", Attr::flag(true))], &[Int(&[3, 4], 0, 2), Real(&[3, 4])], &[]),
        case("slice", &[int("dim", 1), int("start", 1), int("length", 2)], &[Real(&[2, 5, 3])], &[]),
        case("concat", &[int("dim", 1)], &[Real(&[2, 1, 3]), Real(&[2, 4, 3])], &[]),
        case("pad", &[int("dim", 1), int("before", 2), int("after", 1)], &[Real(&[2, 3, 4])], &[]),
        case("rms_norm", &[float("eps", 1e-5)], &[Real(&[2, 3, 4]), Real(&[4])], &[]),
        case("layer_norm", &[float("eps", 1e-5)], &[Real(&[2, 3, 4]), Real(&[4]), Real(&[4])], &[]),
        case("softmax", &[], &[Real(&[2, 3, 4])], &[]),
        case("embedding", &[], &[Int(&[2, 3], -1, 6), Real(&[5, 4])], &[]),
        case("cross_entropy", &[], &[Real(&[4, 5]), Int(&[4], -1, 5)], &[]),
        case("dropout", &dropout, &[Real(&[4, 5])], &[]),
        case("jitter", &jitter, &[Real(&[4, 5])], &[]),
        case("jitter", &[&jitter[..], &[int("origin", 3), int("whole", 9)]].concat(), &[Real(&[4, 5])], &[]),
        case("dropout", &[&dropout[..], &[int("origin", 3), int("whole", 9)]].concat(), &[Real(&[4, 5])], &[]),
    ];
    // Of more than ten choices in six experts of one row, some are dropped.
    let (x, y, index) = (Real(&[2, 5, 3]), Real(&[2, 6, 3, 3]), Int(&[2, 5, 2], 0, 6));
    cases.extend([
        case("top_k", &[int("k", 2)], &[Real(&[2, 5, 6])], &[]),
        case("top_k", &[int("k", 2), int("groups", 3), int("from", 2), int("by", 1)], &[Real(&[2, 5, 6])], &[]),
        case("dispatch", &[], &[x, index], &[2, 6, 1, 3]),
        case("dispatch", &[], &[x, index, Real(&[2, 5, 2])], &[2, 6, 1, 3]),
        case("combine", &[], &[y, index], &[]),
        case("combine", &[], &[y, index, Real(&[2, 5, 2])], &[]),
    ]);
    cases.extend(scans());
    cases.extend(sparse());
    cases.extend(elementwise());
    for inverse in [false, true] {
        let attrs = [float("theta", 100.0), ("inverse", Attr::flag(inverse))];
        cases.push(case("rope", &attrs, &[Real(&[2, 3, 2, 6]), Int(&[2, 3], 0, 9)], &[]));
        let part = [attrs.as_slice(), &[int("turned", 4)]].concat();
        cases.push(case("rope", &part, &[Real(&[2, 3, 2, 6]), Int(&[2, 3], 0, 9)], &[]));
        let linear = [("scaling", Attr::Str("linear".to_string())), float("factor", 2.0)];
        // Of the three pairs, one is kept, one is between, one is scaled.
        let (bounds, context) = ([float("low", 1.0), float("high", 4.0)], ("context", Attr::int(100)));
        let llama3 = [("scaling", Attr::Str("llama3".to_string())), float("factor", 8.0)];
        for scaling in [linear.to_vec(), [llama3.as_slice(), &bounds, &[context]].concat()] {
            let attrs = [attrs.as_slice(), &scaling].concat();
            cases.push(case("rope", &attrs, &[Real(&[2, 3, 2, 6]), Int(&[2, 3], 0, 9)], &[]));
        }
        let attrs = [float("scale", 0.6), ("causal", Attr::flag(inverse))];
        cases.push(case("attention", &attrs, &attention_operands(), &[]));
        let dropout = [float("p", 0.3), ("path", Attr::Str("p".to_string()))];
        let piece = [int("origin", 2), int("whole", 9)];
        cases.push(case("attention", &[attrs.clone(), dropout.clone()].concat(), &attention_operands(), &[]));
        cases.push(case("attention", &[attrs, dropout, piece].concat(), &attention_operands(), &[]));
    }
    let near = [float("scale", 0.6), ("causal", Attr::flag(true)), int("window", 2), float("softcap", 0.8)];
    cases.push(case("attention", &near, &attention_operands(), &[]));
    let in_blocks = [Real(&[2, 6, 2, 2, 4]), Real(&[2, 6, 2, 4]), Real(&[2, 6, 2, 3])];
    let places = [5, 5, 2, 2].map(|most| Int(&[2, 6], 0, most));
    let block = [&near[..2], &[int("block", 3)]].concat();
    cases.push(case("attention", &block, &[&in_blocks[..], &places].concat(), &[]));
    let with_sink = [&attention_operands()[..], &[Real(&[2, 2])]].concat();
    cases.push(case("attention", &near[..2], &with_sink, &[]));
    cases
}

/// Positions of three documents at random among zeros: see [`Int`].
const SCANNED: Operand = Int(&[2, 7], 0, 4);

/// Scans of each kind, with a decay for a head and for each row of a state, and a short convolution.
fn scans() -> Vec<Case> {
    let (q, v, heads) = (Real(&[2, 7, 2, 3]), Real(&[2, 7, 2, 2, 4]), Real(&[2, 7, 2, 2]));
    let by_key = Real(&[2, 7, 2, 2, 3]);
    let scan = |kind: &str, operands: &[Operand]| {
        let attrs = [("kind", Attr::Word(kind.to_string())), float("scale", 0.6), int("chunk", 3)];
        case("scan", &attrs, operands, &[])
    };
    // Of seven rows each is a block, or all are.
    let (single, whole) = (Real(&[2, 7, 2, 2, 3, 4]), Real(&[2, 1, 2, 2, 3, 4]));
    let in_blocks = |kind: &str, block: u64, operands: &[Operand]| {
        let attrs = [("kind", Attr::Word(kind.to_string())), float("scale", 0.6), int("chunk", 3), int("block", block)];
        case("scan", &attrs, operands, &[])
    };
    vec![
        in_blocks("linear", 1, &[q, q, v, heads, SCANNED, single]),
        in_blocks("linear", 7, &[q, q, v, by_key, SCANNED, whole]),
        in_blocks("delta", 7, &[q, q, v, heads, heads, SCANNED, whole]),
        in_blocks("delta", 1, &[q, q, v, by_key, heads, SCANNED, single]),
        in_blocks("selective", 7, &[q, q, v, heads, Real(&[2, 2, 3]), SCANNED, whole]),
        case(
            "short_conv",
            &[int("block", 7)],
            &[Real(&[2, 7, 3, 2]), Real(&[3, 2, 4]), SCANNED, Real(&[2, 1, 3, 3, 2])],
            &[],
        ),
        case(
            "short_conv",
            &[int("block", 3)],
            &[Real(&[2, 6, 3]), Real(&[3, 4]), Int(&[2, 6], 0, 4), Real(&[2, 2, 3, 3])],
            &[],
        ),
        scan("linear", &[q, q, v, heads, SCANNED]),
        scan("linear", &[q, q, v, by_key, SCANNED]),
        scan("delta", &[q, q, v, heads, heads, SCANNED]),
        scan("delta", &[q, q, v, by_key, heads, SCANNED]),
        scan("selective", &[q, q, v, heads, Real(&[2, 2, 3]), SCANNED]),
        case("short_conv", &[], &[Real(&[2, 7, 3, 2]), Real(&[3, 2, 4]), SCANNED], &[]),
    ]
}

/// Positions and segments at random: some queries see all keys, some few, some none.
fn attention_operands() -> [Operand; 7] {
    let tensors = [Real(&[2, 3, 2, 2, 4]), Real(&[2, 5, 2, 4]), Real(&[2, 5, 2, 3])];
    let [q, k, v] = tensors;
    [q, k, v, Int(&[2, 3], 0, 5), Int(&[2, 5], 0, 5), Int(&[2, 3], 0, 2), Int(&[2, 5], 0, 2)]
}

/// Those of a gradient, of as many keys as queries.
fn attention_in_blocks() -> [Operand; 10] {
    let [q, k, v] = [Real(&[2, 6, 2, 2, 4]), Real(&[2, 6, 2, 4]), Real(&[2, 6, 2, 3])];
    let (out, lse) = (Real(&[2, 6, 2, 2, 3]), Real(&[2, 6, 2, 2]));
    let [qpos, kpos, qseg, kseg] = [5, 5, 2, 2].map(|most| Int(&[2, 6], 0, most));
    [q, k, v, out, lse, out, qpos, kpos, qseg, kseg]
}

/// Attention to chosen keys, and what trains an indexer. Some choices name no key.
fn sparse() -> Vec<Case> {
    let (index, scores) = (Int(&[2, 3, 4], -1, 5), Real(&[2, 3, 4]));
    vec![
        case("index_scores", &[], &[Real(&[2, 3, 2, 6]), Real(&[2, 5, 6]), Real(&[2, 3, 2]), index], &[]),
        case("sparse_attention", &[float("scale", 0.6)], &sparse_operands(), &[]),
        case("index_loss", &[], &[scores, Positive(&[2, 3, 4]), index], &[]),
    ]
}

/// Queries, keys, values and choices.
fn sparse_operands() -> [Operand; 4] {
    [Real(&[2, 3, 2, 2, 4]), Real(&[2, 5, 2, 4]), Real(&[2, 5, 2, 3]), Int(&[2, 3, 4], -1, 5)]
}

/// Ops that nothing flows back through: their results are integers, counts or steps, or they have no operands.
pub(crate) fn constants() -> Vec<Case> {
    let comparison = |name| case(name, &[], &[Real(&[3, 4]), Real(&[3, 4])], &[]);
    let mut cases: Vec<Case> = ["less", "less_equal", "equal"].map(comparison).into();
    cases.push(case("iota", &[int("dim", 1)], &[], &[3, 4]));
    cases.push(case("floor", &[], &[Real(&[3, 4])], &[]));
    cases.push(case("stop", &[], &[Real(&[3, 4])], &[]));
    let [q, k, _, index] = sparse_operands();
    let [qpos, kpos] = [Int(&[2, 3], 0, 5), Int(&[2, 5], 0, 5)];
    let indexer = [Real(&[2, 3, 2, 6]), Real(&[2, 5, 6]), Real(&[2, 3, 2]), qpos, kpos, qpos, kpos];
    cases.push(case("select_keys", &[int("keys", 2)], &indexer, &[]));
    cases.push(case("key_mass", &[float("scale", 0.6)], &[q, k, Real(&[2, 3, 2, 2]), index], &[]));
    cases.push(case("choice_count", &[], &[Int(&[2, 3], 0, 4), Real(&[4])], &[]));
    cases.push(case("choice_count", &[float("rate", 0.1)], &[Int(&[2, 3], 0, 4), Real(&[4]), Real(&[4])], &[]));
    cases
}

/// Ops that have none: gradients themselves, updates, pieces of expansions.
pub(crate) fn without_gradient() -> Vec<Case> {
    let x = Real(&[2, 3]);
    let row = Real(&[2]);
    let one = Real(&[]);
    let labels = Int(&[2], 0, 3);
    let [q, k, v, qpos, kpos, qseg, kseg] = attention_operands();
    let (out, lse) = (Real(&[2, 3, 2, 2, 3]), Real(&[2, 3, 2, 2]));
    let attention = [q, k, v, out, lse, out, qpos, kpos, qseg, kseg];
    let (index, mass) = (Int(&[2, 3, 4], -1, 5), Real(&[2, 3, 4]));
    let adam = [float("beta1", 0.9), float("beta2", 0.9), float("eps", 1e-8), float("weight_decay", 0.1)];
    let to = ("to", Attr::Word("f8e4m3".to_string()));
    let flags = [float("scale", 1.0), ("causal", Attr::flag(true))];
    let scan = [("kind", Attr::Word("linear".to_string())), float("scale", 0.6), int("chunk", 3)];
    let (keys, values, heads) = (Real(&[2, 7, 2, 3]), Real(&[2, 7, 2, 2, 4]), Real(&[2, 7, 2, 2]));
    let slopes = BinaryKind::ALL.iter().filter(|kind| is_slope(**kind));
    let mut cases: Vec<Case> = slopes.map(|&kind| Case { op: Binary::of(kind).into(), operands: vec![x, x] }).collect();
    cases.extend([
        case("rms_norm_dx", &[], &[x, Real(&[3]), row, x], &[]),
        case("rms_norm_dgamma", &[], &[x, row, x], &[]),
        case("layer_norm_dx", &[], &[x, Real(&[3]), row, row, x], &[]),
        case("layer_norm_dgamma", &[], &[x, row, row, x], &[]),
        case("softmax_grad", &[], &[x, x], &[]),
        case("attention_grad", &flags, &attention, &[]),
        case("attention_grad", &[&flags[..], &[int("block", 3)]].concat(), &attention_in_blocks(), &[]),
        case("scan_grad", &scan, &[keys, keys, values, heads, SCANNED, values], &[]),
        case("scan_state", &[&scan[..], &[int("block", 7)]].concat(), &[keys, values, heads, SCANNED], &[]),
        case("scan_dstart", &[&scan[..], &[int("block", 7)]].concat(), &[keys, keys, heads, SCANNED, values], &[]),
        case("carry", &[], &[Real(&[2, 3, 2, 2, 3, 4]), Real(&[2, 3, 2, 2])], &[]),
        case("short_conv_dstart", &[int("block", 7)], &[Real(&[2, 7, 3]), Real(&[3, 4]), SCANNED], &[]),
        case("short_conv_dx", &[], &[Real(&[2, 7, 3]), Real(&[3, 4]), SCANNED], &[]),
        case("short_conv_dw", &[], &[Real(&[2, 7, 3]), Real(&[2, 7, 3]), SCANNED], &[3, 4]),
        case("embedding_grad", &[], &[labels, x], &[4, 3]),
        case("cross_entropy_grad", &[], &[x, labels, row, one], &[]),
        case("sum_exp", &[], &[x, row], &[]),
        case("pick", &[], &[x, labels], &[]),
        case("token_loss", &[], &[row, row, labels], &[]),
        case("top_k_grad", &[], &[Int(&[2, 3], 0, 4), x], &[2, 4]),
        case("combine_dw", &[], &[Real(&[2, 5, 3]), Real(&[2, 6, 1, 3]), Int(&[2, 5, 2], 0, 6)], &[]),
        case("index_scores_grad", &[], &[Real(&[2, 3, 2, 6]), Real(&[2, 5, 6]), Real(&[2, 3, 2]), index, mass], &[]),
        case("sparse_attention_grad", &[float("scale", 0.6)], &[q, k, v, out, lse, out, index], &[]),
        case("index_loss_grad", &[], &[mass, mass, index, one], &[]),
        case("absmax", &[("block", Attr::Str("1 3".to_string()))], &[x], &[]),
        case("scale_for", std::slice::from_ref(&to), &[row], &[]),
        case("quantise", std::slice::from_ref(&to), &[x, Real(&[2, 1])], &[]),
        case("exponents", &[], &[x], &[]),
        case("ages", &[], &[x, x, one], &[]),
        case("delayed_scale", &[to, int("within", 16)], &[Real(&[256])], &[]),
        case("sum_squares", &[], &[x], &[]),
        case("adamw", &adam, &[x, x, x, x, one, one, one], &[]),
        case("sgd", &[float("momentum", 0.9), float("weight_decay", 0.1)], &[x, x, x, one, one], &[]),
        case("clip_factor", &[float("max", 1.0)], &[one], &[]),
    ]);
    cases
}
