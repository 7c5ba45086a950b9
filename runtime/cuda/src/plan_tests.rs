//! Tests of launch plans, evaluated on the CPU, against the reference evaluator.

use super::super::lower::access;
use super::*;
use ir::mesh::Mesh;
use ir::ops::{
    Binary, BinaryKind, Broadcast, Compare, CompareKind, CrossEntropy, CrossEntropyGrad, Dropout, Embedding, Equation,
    Jitter, LayerNorm, LayerNormDgamma, LayerNormDx, Op, Permute, Pick, Reduce, RmsNorm, RmsNormDgamma, RmsNormDx,
    Rope, Scaling, Select, Sgd, Slice, Softmax, SoftmaxGrad, SumExp, TokenLoss, Unary, UnaryKind,
};
use ir::types::{DType, Dim, PartialKind};
use kernels::cpu::Par;
use kernels::cpu::dropout::uniform;
use kernels::group::RandomContext;
use kernels::scalar::Strides;
use reference::{Array, Context, Tensor as Dense, ops::evaluate};

/// The compute capability that plans are for.
const HOPPER: (u32, u32) = (9, 0);

/// The kernel op, the types of its operands and of its results.
fn typed(op: impl Into<Op>, sizes: &[&[u64]]) -> (Op, KernelOp, Vec<Type>, Vec<Type>) {
    let op = op.into();
    let dtype = |at| if is_int(&op, at) { DType::I32 } else { DType::F32 };
    let types: Vec<Type> = sizes.iter().enumerate().map(|(at, sizes)| Type::of(dtype(at), sizes)).collect();
    let results = op.infer(&types.iter().collect::<Vec<_>>()).unwrap();
    let Op::Kernel(kernel) = op.clone() else { panic!("{} has no kernel", op.name()) };
    (op, kernel, types, results)
}

/// True if an operand is of integers.
fn is_int(op: &Op, operand: usize) -> bool {
    let ints: &[usize] = match op.name() {
        "embedding" | "select" => &[0],
        "rope" => &[1, 2],
        "cross_entropy" | "cross_entropy_grad" | "pick" => &[1],
        "token_loss" => &[2],
        _ => &[],
    };
    ints.contains(&operand)
}

fn planned(op: &KernelOp, operands: &[Type], results: &[Type]) -> Result<Plan, String> {
    let sides = [operands, results].map(|side| side.iter().collect::<Vec<_>>());
    let mesh = Mesh::default();
    let site = KernelSite { mesh: &mesh, coordinates: &[], operands: &sides[0], results: &sides[1], forward: true };
    plan(op, &site, HOPPER)
}

/// The results of a plan of kernels alone.
fn run(plan: &Plan, operands: &[Vec<f32>], results: usize) -> Vec<Vec<f32>> {
    let mut made = vec![Vec::new(); results];
    for stage in &plan.stages {
        let of = |place: &Place| match *place {
            Place::Operand(at) => &operands[at][..],
            place => panic!("{place:?} in one kernel"),
        };
        let inputs: Vec<&[f32]> = stage.operands.iter().map(of).collect();
        let outs = match &stage.work {
            Work::Kernel(program) => {
                program.evaluate(&inputs, RandomContext { step: 1, ..RandomContext::default() }, Par(1)).unwrap()
            }
            Work::Copy => vec![inputs[0].to_vec()],
            work => panic!("{work:?} is no kernel of a program"),
        };
        for (place, out) in stage.results.iter().zip(outs) {
            let Place::Result(at) = place else { panic!("one kernel") };
            made[*at] = out;
        }
    }
    made
}

#[test]
fn elementwise_plans_compute_their_ops() {
    let same: [&[u64]; 2] = [&[4, 5], &[4, 5]];
    let spread = |kind, text| Op::from(Binary::spread(kind, text).unwrap());
    let eq = |text| Equation::parse(text).unwrap();
    let mut cases: Vec<(Op, Vec<&[u64]>)> =
        UnaryKind::ALL.iter().map(|&kind| (Unary(kind).into(), vec![&[4u64, 5][..]])).collect();
    cases.extend(BinaryKind::ALL.iter().map(|&kind| (Binary::of(kind).into(), same.to_vec())));
    cases.extend([
        (spread(BinaryKind::Div, "a b, b -> a b"), vec![&[4u64, 5][..], &[5]]),
        (spread(BinaryKind::Mul, "a b, () -> a b"), vec![&[4, 5], &[]]),
        (spread(BinaryKind::Sub, "a, a b c -> a b c"), vec![&[3], &[3, 2, 4]]),
        (Broadcast { equation: eq("b -> a b c"), free: vec![Dim::sized(3), Dim::sized(7)] }.into(), vec![&[4]]),
        (Permute::new("a b c -> c a b").unwrap().into(), vec![&[3, 4, 5]]),
        (Permute::new("a b c -> b a c").unwrap().into(), vec![&[1, 4, 5]]),
        (Slice { dim: 1, start: 1, length: 2 }.into(), vec![&[3, 4, 5]]),
        (Slice { dim: 0, start: 0, length: 2 }.into(), vec![&[3, 4, 5]]),
    ]);
    cases.into_iter().for_each(|(op, sizes)| check(op, &sizes));
}

fn check(op: Op, sizes: &[&[u64]]) {
    let (op, kernel, operands, results) = typed(op, sizes);
    let plan = planned(&kernel, &operands, &results).unwrap();
    assert_eq!(plan.stages.len(), 1, "{} is one kernel", op.name());
    let data: Vec<Vec<f32>> = (0..operands.len())
        .map(|t| {
            let number = |i| match is_int(&op, t) {
                true => (6.0 * uniform([t as u32, 7], i)).floor() - 1.0,
                false => 0.1 + uniform([t as u32, 7], i),
            };
            (0..operands[t].elements()).map(number).collect()
        })
        .collect();
    let got = run(&plan, &data, results.len());
    let dims = |ty: &Type| ty.sizes().iter().map(|&size| size as usize).collect::<Vec<_>>();
    let array = |(x, ty): (&Vec<f32>, &Type)| match ty.dtype {
        DType::I32 => Array::Int(Dense::from_fn(&dims(ty), |i| x[i] as i32)),
        _ => Array::Real(Dense::from_fn(&dims(ty), |i| f64::from(x[i]))),
    };
    let given: Vec<Array<f64>> = data.iter().zip(&operands).map(array).collect();
    let context = Context { step: 1, ..Context::default() };
    let shapes: Vec<Vec<usize>> = results.iter().map(dims).collect();
    let want = evaluate(&op, &given.iter().collect::<Vec<_>>(), &shapes, context).unwrap();
    for (got, want) in got.iter().zip(want) {
        let want: Vec<f64> = match want {
            Array::Real(want) => want.data,
            Array::Int(want) => want.data.into_iter().map(f64::from).collect(),
        };
        assert_eq!(got.len(), want.len(), "{}", op.name());
        for (got, want) in got.iter().zip(&want) {
            assert!((f64::from(*got) - want).abs() <= 1e-5 * want.abs().max(1.0), "{}: {got} is not {want}", op.name());
        }
    }
}

#[test]
fn plans_of_rows_compute_their_ops() {
    let [x, row, column]: [&[u64]; 3] = [&[3, 4, 6], &[3, 4], &[6]];
    let eq = |kind, text| Op::from(Reduce::new(kind, text).unwrap());
    let rope = |inverse| Op::from(Rope { theta: 100.0, scaling: None, turned: None, gain: 1.0, inverse });
    let dropout = Dropout { p: 0.3, path: "a.b".into(), piece: None };
    let lengths = Scaling::Lengths { short: vec![1.0; 3].into(), long: vec![0.5; 3].into(), context: 2 };
    let by_length = Rope { theta: 100.0, scaling: Some(lengths), turned: None, gain: 1.5, inverse: true };
    let cases: [(Op, &[&[u64]]); 29] = [
        (RmsNorm { eps: 1e-5 }.into(), &[x, column]),
        (RmsNormDx.into(), &[x, column, row, x]),
        (RmsNormDgamma.into(), &[x, row, x]),
        (LayerNorm { eps: 1e-5 }.into(), &[x, column, column]),
        (LayerNormDx.into(), &[x, column, row, row, x]),
        (LayerNormDgamma.into(), &[x, row, row, x]),
        (Softmax.into(), &[x]),
        (SoftmaxGrad.into(), &[x, x]),
        (CrossEntropy.into(), &[x, row]),
        (CrossEntropyGrad.into(), &[x, row, row, &[]]),
        (SumExp.into(), &[x, row]),
        (Pick.into(), &[x, row]),
        (TokenLoss.into(), &[row, row, row]),
        (Embedding { pad: None }.into(), &[row, &[5, 7]]),
        (rope(false), &[&[3, 4, 2, 6], row]),
        (rope(true), &[&[3, 4, 6], row]),
        (by_length.into(), &[&[3, 4, 2, 6], row, row]),
        (dropout.into(), &[x]),
        (Jitter { width: 0.3, path: "a.b".into(), piece: None }.into(), &[x]),
        (Jitter { width: 0.0, path: String::new(), piece: None }.into(), &[x]),
        (Dropout { p: 0.0, path: String::new(), piece: None }.into(), &[x]),
        (Compare(CompareKind::Less).into(), &[x, x]),
        (Compare(CompareKind::Equal).into(), &[x, x]),
        (Select { not: false }.into(), &[x, x, x]),
        (Select { not: true }.into(), &[x, x]),
        (eq(PartialKind::Sum, "a b c -> a"), &[x]),
        (eq(PartialKind::Max, "a b c -> a b"), &[x]),
        (eq(PartialKind::Sum, "a b c -> c"), &[x]),
        (eq(PartialKind::Sum, "a b c -> ()"), &[x]),
    ];
    cases.into_iter().for_each(|(op, sizes)| check(op, sizes));
}

#[test]
fn accesses_are_as_simple_as_they_can_be() {
    assert_eq!(access(&[2, 3], &[3, 1], 0), Access::Same);
    assert_eq!(access(&[1, 3], &[9, 1], 0), Access::Same);
    assert_eq!(access(&[2, 3], &[0, 0], 0), Access::One);
    assert_eq!(access(&[2, 3], &[0, 1], 0), Access::Strided(Strides { dims: vec![(2, 0), (3, 1)], offset: 0 }));
    assert!(matches!(access(&[2, 3], &[3, 1], 3), Access::Strided(_)));
}

#[test]
fn einsums_are_matrix_products() {
    let (_, op, operands, results) = typed(Einsum::new("b s h, h g d -> b s g d").unwrap(), &[&[3, 4, 5], &[5, 2, 6]]);
    let want = Contraction::new(&['b', 's', 'h'], &['h', 'g', 'd'], &['b', 's', 'g', 'd'], &[3, 4, 5], &[5, 2, 6]);
    let plan = planned(&op, &operands, &results).unwrap();
    let work = |formats| Work::Product(Box::new(want.clone().unwrap()), formats, None);
    let [product] = &plan.stages[..] else { panic!("one launch") };
    assert_eq!(product.work, work(Formats::F32));
    assert_eq!((&product.results[..], &product.adds[..]), (&[Place::Result(0)][..], &[Some(0)][..]));
    // The library rounds narrow results.
    let narrow = |types: &[Type], dtype| types.iter().map(|ty| Type { dtype, ..ty.clone() }).collect::<Vec<_>>();
    for (dtype, arithmetic, result) in
        [(DType::BF16, Arithmetic::Bf16, Element::Bf16), (DType::F16, Arithmetic::F16, Element::F16)]
    {
        let plan = planned(&op, &narrow(&operands, dtype), &narrow(&results, dtype)).unwrap();
        let [product] = &plan.stages[..] else { panic!("one launch") };
        assert_eq!(product.work, work(Formats { arithmetic, result }));
        assert_eq!((&product.results[..], &product.adds[..]), (&[Place::Result(0)][..], &[Some(0)][..]));
        let plan = planned(&op, &narrow(&operands, dtype), &results).unwrap();
        let [product] = &plan.stages[..] else { panic!("one launch") };
        assert_eq!(product.work, work(Formats { arithmetic, result: Element::F32 }));
    }
    // A format that is not the operands' is another kernel's.
    let plan = planned(&op, &narrow(&operands, DType::BF16), &narrow(&results, DType::F16)).unwrap();
    let [product, rounding] = &plan.stages[..] else { panic!("two launches") };
    assert_eq!(product.work, work(Formats { arithmetic: Arithmetic::Bf16, result: Element::F32 }));
    assert_eq!((&product.results, &product.adds[..]), (&rounding.operands, &[None][..]));
    assert_eq!((&rounding.results[..], &rounding.adds[..]), (&[Place::Result(0)][..], &[Some(0)][..]));
    assert!(plan.scratch >= 4 * 3 * 4 * 2 * 6);
}

/// Dims that lie in another order than the library writes them are moved: before they are rounded only where they are added.
#[test]
fn products_are_rounded_before_they_move_unless_they_are_added() {
    let eq = |accumulate| {
        let (_, op, operands, results) = typed(Einsum::new("a b k, k c -> a c b").unwrap(), &[&[3, 4, 5], &[5, 6]]);
        let narrow =
            |types: &[Type]| types.iter().map(|ty| Type { dtype: DType::BF16, ..ty.clone() }).collect::<Vec<_>>();
        let (operands, results, mesh) = (narrow(&operands), narrow(&results), Mesh::default());
        let sides = [&operands, &results].map(|side| side.iter().collect::<Vec<_>>());
        let site = KernelSite { mesh: &mesh, coordinates: &[], operands: &sides[0], results: &sides[1], forward: true };
        let operands = vec![GroupValue::Operand(0), GroupValue::Operand(1)];
        let stmt = GroupStmt { op: &op, site, operands, results: vec![GroupValue::Result(0)], accumulate };
        plan_group(&GroupSite { stmts: vec![stmt] }, HOPPER).unwrap()
    };
    for (accumulate, format) in [(false, Element::Bf16), (true, Element::F32)] {
        let plan = eq(accumulate);
        let formats = plan.stages.iter().find_map(|stage| match &stage.work {
            Work::Product(_, formats, _) => Some(*formats),
            _ => None,
        });
        assert_eq!(formats, Some(Formats { arithmetic: Arithmetic::Bf16, result: format }));
    }
}

/// The plan of a product of `[m, k]` and `[k, n]` in 8 bits, for scales of some shapes.
fn scaled_product(sizes: [u64; 3], scales: [&[u64]; 2], capability: (u32, u32)) -> Plan {
    let [m, k, n] = sizes;
    let op = Einsum::new("m k, k n -> m n").unwrap().scaled(DType::BF16).unwrap();
    let operands = [Type::of(DType::F8E5M2, &[m, k]), Type::of(DType::F8E4M3, &[k, n])];
    let scales = scales.map(|sizes| Type::of(DType::F32, sizes));
    let (operands, result) = (operands.iter().chain(&scales).collect::<Vec<_>>(), Type::of(DType::BF16, &[m, n]));
    let (mesh, results) = (Mesh::default(), [&result]);
    let site = KernelSite { mesh: &mesh, coordinates: &[], operands: &operands, results: &results, forward: true };
    plan(&KernelOp::Einsum(op), &site, capability).unwrap()
}

#[test]
fn products_of_8_bits_are_those_of_tensor_cores_or_of_bf16() {
    let one: [&[u64]; 2] = [&[1, 1], &[1, 1]];
    let arithmetic = |plan: &Plan| match plan.stages.last().map(|stage| &stage.work) {
        Some(Work::Product(_, formats, _)) => *formats,
        work => panic!("{work:?}"),
    };
    // The second operand has its terms apart, and is copied.
    let direct = scaled_product([16, 32, 48], one, HOPPER);
    let [copy, product] = &direct.stages[..] else { panic!("two launches") };
    let formats = Formats { arithmetic: Arithmetic::F8([Element::F8E5M2, Element::F8E4M3]), result: Element::Bf16 };
    assert_eq!(arithmetic(&direct), formats);
    assert_eq!((&copy.operands[..], direct.scratch), (&[Place::Operand(1)][..], 32 * 48));
    let places = [Place::Operand(0), copy.results[0], Place::Operand(2), Place::Operand(3)];
    assert_eq!((&product.operands[..], &product.results[..]), (&places[..], &[Place::Result(0)][..]));
    // Both operands become bf16 of a device without 8 bits, of odd sizes, and of blocks.
    let blocks: [&[u64]; 2] = [&[16, 2], &[2, 3]];
    for plan in [
        scaled_product([16, 32, 48], one, (8, 0)),
        scaled_product([16, 31, 48], one, HOPPER),
        scaled_product([16, 32, 48], blocks, HOPPER),
    ] {
        let [first, second, product] = &plan.stages[..] else { panic!("three launches") };
        assert_eq!(arithmetic(&plan), Formats { arithmetic: Arithmetic::Bf16, result: Element::Bf16 });
        assert_eq!(first.operands, [Place::Operand(0), Place::Operand(2)]);
        assert_eq!(second.operands, [Place::Operand(1), Place::Operand(3)]);
        assert_eq!(product.operands, [first.results[0], second.results[0]]);
    }
}

#[test]
fn queries_and_keys_of_other_sizes_turn_in_kernels_of_their_own() {
    let (mesh, positions) = (Mesh::default(), Type::of(DType::I32, &[2, 8]));
    let [queries, keys] = [8, 2].map(|heads| Type::of(DType::BF16, &[2, 8, heads, 4]));
    let operands = [&queries, &keys].map(|x| [x, &positions]);
    let results = [[&queries], [&keys]];
    let op = rope();
    let stmt = |at: usize, result| GroupStmt {
        op: &op,
        site: KernelSite {
            mesh: &mesh,
            coordinates: &[],
            operands: &operands[at],
            results: &results[at],
            forward: true,
        },
        operands: [at, 2].map(GroupValue::Operand).to_vec(),
        results: vec![GroupValue::Result(result)],
        accumulate: false,
    };
    let stages = |stmts| plan_group(&GroupSite { stmts }, HOPPER).unwrap().stages.len();
    assert_eq!(stages(vec![stmt(0, 0), stmt(1, 1)]), 2, "four columns of a key keep four threads of a warp busy");
    assert_eq!(stages(vec![stmt(1, 0), stmt(0, 1)]), 2);
    assert_eq!(stages(vec![stmt(0, 0), stmt(0, 1)]), 1);
}

/// Rounds of a ring, joined: weights of rows, and rows of few elements that they scale.
#[test]
fn rows_and_their_elements_are_several_kernels() {
    let text = "mesh @m = [dp=1]
dims [b=1, s=16, g=2, r=2, c=8]
block @b(%x: f32[b, s, g, r, c], %l: f32[b, s, g, r], %y: f32[b, s, g, r, c], %k: f32[b, s, g, r]) -> f32[b, s, g, r, c], f32[b, s, g, r] {
  %max: f32[b, s, g, r] = max(%l, %k)
  %most: f32[b, s, g, r] = at_least(%max, min=-1e30)
  %a: f32[b, s, g, r] = sub(%l, %most)
  %b: f32[b, s, g, r] = exp(%a)
  %c: f32[b, s, g, r] = sub(%k, %most)
  %d: f32[b, s, g, r] = exp(%c)
  %sum: f32[b, s, g, r] = add(%b, %d)
  %all: f32[b, s, g, r] = at_least(%sum, min=1.0)
  %e: f32[b, s, g, r] = div(%b, %all)
  %g: f32[b, s, g, r] = div(%d, %all)
  %f: f32[b, s, g, r, c] = mul(%x, %e, eq=\"b s g r c, b s g r -> b s g r c\")
  %h: f32[b, s, g, r, c] = mul(%y, %g, eq=\"b s g r c, b s g r -> b s g r c\")
  %o: f32[b, s, g, r, c] = add(%f, %h)
  %log: f32[b, s, g, r] = log(%sum)
  %lse: f32[b, s, g, r] = add(%most, %log)
  return %o, %lse
}";
    let stages = |text: &str| {
        let model = ir::text::parse(text).unwrap().model;
        let block = model.blocks.values().next().unwrap();
        let section = &block[ir::graph::SectionKind::F];
        let fused = ir::fused::Fused { stmts: section.stmts.clone(), outs: section.ret.clone() };
        let at =
            device::backend::GroupPlace { values: &block.values, mesh: &model.mesh, coordinates: &[0], forward: true };
        GroupSite::with(&fused, at, |site| plan_group(site, HOPPER)).unwrap().stages.len()
    };
    let both = stages(text);
    // Nothing reads the last two statements.
    let one = stages(&text.replace("return %o, %lse", "return %o").replace(", f32[b, s, g, r] {", " {"));
    assert!((2..=5).contains(&both) && one < both, "{both}, {one}");
}

fn rope() -> KernelOp {
    let rope = Rope { theta: 1e4, scaling: None, turned: None, gain: 1.0, inverse: false };
    let Op::Kernel(op) = rope.into() else { panic!("a kernel op") };
    op
}

/// Groups of two statements on `[3, 4, 6]`, the first on operand 0.
fn pair(
    first: &KernelOp,
    second: &KernelOp,
    types: &[&Type],
    interior: &Type,
    result: &Type,
    accumulate: bool,
) -> Plan {
    let mesh = Mesh::default();
    let (results, operands) = ([interior], [&[interior], &types[1..]].concat());
    let out = [result];
    let site = |operands, results| KernelSite { mesh: &mesh, coordinates: &[], operands, results, forward: true };
    let (one, two) = (site(&types[..1], &results), site(&operands, &out));
    let read: Vec<GroupValue> = (1..types.len()).map(GroupValue::Operand).collect();
    let stmts = vec![
        GroupStmt {
            op: first,
            site: one,
            operands: vec![GroupValue::Operand(0)],
            results: vec![GroupValue::Interior(0)],
            accumulate: false,
        },
        GroupStmt {
            op: second,
            site: two,
            operands: [vec![GroupValue::Interior(0)], read].concat(),
            results: vec![GroupValue::Result(0)],
            accumulate,
        },
    ];
    plan_group(&GroupSite { stmts }, HOPPER).unwrap()
}

#[test]
fn a_kernel_is_as_many_statements_as_it_can_do() {
    let x = Type::of(DType::F32, &[3, 4, 6]);
    let op = |op: Op| if let Op::Kernel(op) = op { op } else { panic!("a kernel op") };
    let softmax = op(Softmax.into());
    let sum = op(Reduce::new(PartialKind::Sum, "a b c -> c").unwrap().into());
    let row = Type::of(DType::F32, &[6]);
    let plan = pair(&softmax, &sum, &[&x], &x, &row, true);
    let [stage] = &plan.stages[..] else { panic!("one launch") };
    assert_eq!(stage.adds, [Some(0)]);
    assert!(plan.scratch > 0, "sums of chunks have room");
    // A row of the one is not a row of the other.
    let sum = op(Reduce::new(PartialKind::Sum, "a b c -> b c").unwrap().into());
    let plan = pair(&softmax, &sum, &[&x], &x, &Type::of(DType::F32, &[4, 6]), true);
    let [one, two] = &plan.stages[..] else { panic!("two launches") };
    assert_eq!(one.results, two.operands);
    assert!(matches!(one.results[..], [Place::Scratch(_)]) && two.adds == [Some(0)]);
}

#[test]
fn an_update_leaves_a_copy_of_its_weights_in_another_format() {
    use GroupValue::{Operand, Result};
    let [w, scalar, copy] = [Type::of(DType::F32, &[3, 5]), Type::scalar(DType::F32), Type::of(DType::BF16, &[3, 5])];
    let (update, cast) =
        (KernelOp::Sgd(Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }), UnaryKind::Cast(DType::BF16));
    let cast = KernelOp::Unary(Unary(cast));
    let mesh = Mesh::default();
    for (read, launches) in [(Result(0), 1), (Result(1), 2)] {
        let sides = [(vec![&w, &w, &w, &scalar, &scalar], vec![&w, &w]), (vec![&w], vec![&copy])];
        let site = |at: usize| {
            let (operands, results) = &sides[at];
            KernelSite { mesh: &mesh, coordinates: &[], operands, results, forward: false }
        };
        let operands = vec![Result(0), Operand(0), Result(1), Operand(1), Operand(2)];
        let stmts = vec![
            GroupStmt { op: &update, site: site(0), operands, results: vec![Result(0), Result(1)], accumulate: false },
            GroupStmt { op: &cast, site: site(1), operands: vec![read], results: vec![Result(2)], accumulate: false },
        ];
        let plan = plan_group(&GroupSite { stmts }, HOPPER).unwrap();
        assert_eq!(plan.stages.len(), launches);
        let Stage { work: Work::Written(work), operands, results, .. } = &plan.stages[0] else { panic!("an update") };
        assert_eq!(operands[..], [0, 1, 2].map(Place::Operand));
        // The weights are copied, and no other result.
        let (copies, left) = (work.source.contains("#define COPIES"), &results[..]);
        assert_eq!((copies, left), (launches == 1, &[0, 1, 2].map(Place::Result)[..if copies { 3 } else { 2 }]));
    }
}

#[test]
fn what_is_read_elsewhere_is_copied_before_it_is_overwritten() {
    let x = Type::of(DType::F32, &[3, 4, 2, 6]);
    let position = Type::of(DType::I32, &[3, 4]);
    let op = |op: Op| if let Op::Kernel(op) = op { op } else { panic!("a kernel op") };
    let (neg, rope) = (
        op(Unary(UnaryKind::Neg).into()),
        op(Rope { theta: 100.0, scaling: None, turned: None, gain: 1.0, inverse: false }.into()),
    );
    let plan = pair(&neg, &rope, &[&x, &position], &x, &x, false);
    let [stage] = &plan.stages[..] else { panic!("one launch") };
    assert_eq!(stage.spare, [(0, 0, 4 * 3 * 4 * 2 * 6)]);
}

/// The plan of a product of `[3, 4]` and `[4, 6]`, and of a statement that reads it and another tensor.
fn product_and(second: &KernelOp, other: (GroupValue, &Type), accumulate: bool) -> Plan {
    let (value, other) = other;
    let KernelOp::Einsum(einsum) = &einsum("m k, k n -> m n") else { panic!("an einsum") };
    let narrow = |sizes: &[u64]| Type::of(DType::BF16, sizes);
    let (x, w, y, mesh) = (narrow(&[3, 4]), narrow(&[4, 6]), narrow(&[3, 6]), Mesh::default());
    let (first, results, operands) = ([&x, &w], [&y], [&y, other]);
    let site = |operands, results| KernelSite { mesh: &mesh, coordinates: &[], operands, results, forward: true };
    let product = GroupStmt {
        op: &KernelOp::Einsum(einsum.clone()),
        site: site(&first, &results),
        operands: vec![GroupValue::Operand(0), GroupValue::Operand(1)],
        results: vec![GroupValue::Interior(0)],
        accumulate: false,
    };
    let read = GroupStmt {
        op: second,
        site: site(&operands, &results),
        operands: vec![GroupValue::Interior(0), value],
        results: vec![GroupValue::Result(0)],
        accumulate,
    };
    plan_group(&GroupSite { stmts: vec![product, read] }, HOPPER).unwrap()
}

fn einsum(equation: &str) -> KernelOp {
    KernelOp::Einsum(Einsum::new(equation).unwrap())
}

#[test]
fn a_product_adds_what_alone_reads_it() {
    let op = |op: Op| if let Op::Kernel(op) = op { op } else { panic!("a kernel op") };
    let (add, bias) =
        (op(Binary::of(BinaryKind::Add).into()), op(Binary::spread(BinaryKind::Add, "m n, n -> m n").unwrap().into()));
    let (same, row) = (Type::of(DType::BF16, &[3, 6]), Type::of(DType::BF16, &[6]));
    let other = |ty| (GroupValue::Operand(2), ty);
    for (sum, ty, addend) in [(&add, &same, Addend::Same), (&bias, &row, Addend::Row)] {
        let plan = product_and(sum, other(ty), false);
        let [product] = &plan.stages[..] else { panic!("one launch") };
        assert!(matches!(&product.work, Work::Product(_, _, Some(added)) if *added == addend), "{product:?}");
        assert_eq!(
            (&product.operands[..], &product.results[..]),
            (&[0, 1, 2].map(Place::Operand)[..], &[Place::Result(0)][..])
        );
        // A gradient sum is another kernel's.
        assert_eq!(product_and(sum, other(ty), true).stages.len(), 2);
    }
    let wide = Type::of(DType::F32, &[3, 6]);
    let sub = op(Binary::of(BinaryKind::Sub).into());
    let column = op(Binary::spread(BinaryKind::Add, "m n, m -> m n").unwrap().into());
    let launches = [
        product_and(&sub, other(&same), false),
        product_and(&add, other(&wide), false),
        product_and(&column, other(&Type::of(DType::BF16, &[3])), false),
        // D would have the place of A, or the sum two terms of the product.
        product_and(&add, (GroupValue::Operand(0), &same), false),
        product_and(&add, (GroupValue::Interior(0), &same), false),
    ];
    launches.iter().for_each(|plan| assert_eq!(plan.stages.len(), 2, "{plan:?}"));
}
