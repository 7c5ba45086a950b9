//! Every op: its result types, an operand list that it refuses, its rule on these tensors, its attributes through the parser,
//! the types of its gradient and of its expansion. The table must name every op.

#[path = "ops/cases.rs"]
mod cases;

use cases::{OpCase, cases, dims, f, heads, quantised, vocabulary};
use meshwright_ir::entity::EntityRef;
use meshwright_ir::graph::Block;
use meshwright_ir::ids::{AxisId, Value};
use meshwright_ir::mesh::Axes;
use meshwright_ir::ops::*;
use meshwright_ir::rule::{Instance, Rule};
use meshwright_ir::types::Type;
use std::collections::BTreeSet;

fn refs(types: &[Type]) -> Vec<&Type> {
    types.iter().collect()
}

/// A block with values of these types, before any statement.
fn block_of(types: &[Type]) -> (Block, Vec<Value>) {
    let mut block = Block::default();
    let values = types.iter().map(|ty| block.add_value("", ty.clone())).collect();
    (block, values)
}

fn instance(case: &OpCase) -> Instance {
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
const WITHOUT_GRADIENT: [&str; 38] = [
    "exponents",
    "ages",
    "delayed_scale",
    "absmax",
    "scale_for",
    "quantise",
    "less",
    "less_equal",
    "equal",
    "rms_norm_dx",
    "rms_norm_dgamma",
    "layer_norm_dx",
    "layer_norm_dgamma",
    "softmax_grad",
    "attention_grad",
    "scan_grad",
    "scan_state",
    "scan_dstart",
    "carry",
    "short_conv_dx",
    "short_conv_dw",
    "short_conv_dstart",
    "embedding_grad",
    "cross_entropy_grad",
    "sum_exp",
    "pick",
    "token_loss",
    "sum_squares",
    "adamw",
    "sgd",
    "top_k_grad",
    "choice_count",
    "combine_dw",
    "select_keys",
    "index_scores_grad",
    "sparse_attention_grad",
    "key_mass",
    "index_loss_grad",
];

fn has_gradient(case: &OpCase) -> bool {
    let is_without = match &case.op {
        Op::Kernel(KernelOp::Einsum(op)) => op.scaled.is_some() || op.ragged.is_some(),
        // The cotangents of functions.
        Op::Kernel(KernelOp::Binary(op)) => op.facts().linear == Linear::Each(&[1]),
        op => WITHOUT_GRADIENT.contains(&op.name()),
    };
    !is_without
}

#[test]
fn cotangents_have_the_types_of_operands() {
    for case in cases() {
        let (mut block, operands) = block_of(&case.operands);
        let results: Vec<Value> = case.results.iter().map(|ty| block.add_value("", ty.clone())).collect();
        let mut given = vec![None; results.len()];
        given[0] = Some(block.add_value("", case.results[0].clone()));
        // A bias of top_k only chooses.
        let chooses =
            |place: usize| case.op.name() == "top_k" && place == 1 || case.op.facts().constants.contains(&place);
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
            let step = OpCase { op: stmt.op, operands, results, wrong: (0, f(&[]), "") };
            // Composite ops are always replaced, whatever is sharded.
            let is_free = instance(&step).factors.iter().all(|factor| !factor.replicated);
            assert!(is_free || case.op.is_composite(), "{}", step.op.name());
        }
    }
    let kernels =
        ["cross_entropy", "layer_norm", "layer_norm_dx", "rms_norm", "rms_norm_dx", "softmax", "softmax_grad"];
    assert_eq!(expanded, kernels.into_iter().chain(composite_names()).collect());
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
    let rule = |case: &OpCase| case.op.def().unwrap().rule(&refs(&case.operands), &refs(&case.results));
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
    let flops_of = |case: &OpCase| work(case.op.clone(), &case.operands, &case.results).flops;
    let heads = heads();
    assert_eq!(flops_of(&heads[2]), 2 * (pairs / 2) * (8 + 10));
    assert_eq!(flops_of(&heads[3]), 2 * pairs * (3 * 8 + 2 * 10));
    // Behind the two of six keys that come before the slice, causal attention has half.
    let on_piece = heads[2].op.extras().positioned.unwrap().on_piece(Piece { origin: 2, whole: 9 });
    assert_eq!(work(on_piece, &heads[2].operands, &heads[2].results).flops, 2 * (pairs * (2 + 6) / 2 / 6) * (8 + 10));
}

#[test]
fn slices_lie_within_their_sequence() {
    let placed =
        |case: &OpCase, piece| case.op.extras().positioned.unwrap().on_piece(piece).infer(&refs(&case.operands));
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
        assert!(Jitter { width: p, path: String::new(), piece: None }.infer(&[&f(&[2, 3])]).is_err());
        let case = &heads()[2];
        assert!(Attention(AttentionSettings::new(1.0, true)).infer(&refs(&case.operands)).is_ok());
        let settings = AttentionSettings { dropout: Some(dropout), ..AttentionSettings::new(1.0, true) };
        assert!(Attention(settings).infer(&refs(&case.operands)).is_err());
    }
}
