//! Tests of launch plans, evaluated on the CPU, against the reference evaluator.

use super::*;
use crate::reference::{Array, Context, Tensor as Dense, ops::evaluate};
use ir::mesh::Mesh;
use ir::ops::{BinaryKind, Op, RmsNorm, UnaryKind};
use ir::types::{Dim, Type};
use kernels::cpu::Par;
use kernels::cpu::dropout::uniform;

/// The kernel op, the types of its operands and of its results.
fn typed(op: impl Into<Op>, sizes: &[&[u64]]) -> (Op, KernelOp, Vec<Type>, Vec<Type>) {
    let op = op.into();
    let types: Vec<Type> = sizes.iter().map(|sizes| Type::of(DType::F32, sizes)).collect();
    let results = op.infer(&types.iter().collect::<Vec<_>>()).unwrap();
    let Op::Kernel(kernel) = op.clone() else { panic!("{} has no kernel", op.name()) };
    (op, kernel, types, results)
}

fn planned(op: &KernelOp, operands: &[Type], results: &[Type]) -> Result<Plan, String> {
    let sides = [operands, results].map(|side| side.iter().collect::<Vec<_>>());
    let mesh = Mesh::default();
    plan(op, &KernelSite { mesh: &mesh, coordinates: &[], operands: &sides[0], results: &sides[1], forward: true })
}

#[test]
fn elementwise_plans_compute_their_ops() {
    use BinaryKind::{Add, Div, GeluErfGrad, GeluGrad, Max, Min, Mul, ReluSquaredGrad, SigmoidGrad, SiluGrad, Sub};
    use UnaryKind::*;
    let unary = [
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
        Sigmoid,
        Silu,
        Gelu,
        GeluErf,
        ReluSquared,
        Scale(2.5),
        Shift(0.5),
        AtMost(0.7),
        AtLeast(0.7),
        Cast(DType::F32),
    ];
    let same: [&[u64]; 2] = [&[4, 5], &[4, 5]];
    let spread = |kind, text| Op::from(Binary::spread(kind, text).unwrap());
    let eq = |text| Equation::parse(text).unwrap();
    let mut cases: Vec<(Op, Vec<&[u64]>)> =
        unary.into_iter().map(|kind| (Unary(kind).into(), vec![&[4u64, 5][..]])).collect();
    let binary = [Add, Sub, Mul, Div, Max, Min, SigmoidGrad, SiluGrad, GeluGrad, GeluErfGrad, ReluSquaredGrad];
    cases.extend(binary.into_iter().map(|kind| (Binary::of(kind).into(), same.to_vec())));
    cases.extend([
        (spread(Div, "a b, b -> a b"), vec![&[4u64, 5][..], &[5]]),
        (spread(Mul, "a b, () -> a b"), vec![&[4, 5], &[]]),
        (spread(Sub, "a, a b c -> a b c"), vec![&[3], &[3, 2, 4]]),
        (Broadcast { equation: eq("b -> a b c"), free: vec![Dim::sized(3), Dim::sized(7)] }.into(), vec![&[4]]),
        (Permute::new("a b c -> c a b").unwrap().into(), vec![&[3, 4, 5]]),
        (Permute::new("a b c -> b a c").unwrap().into(), vec![&[1, 4, 5]]),
        (Slice { dim: 1, start: 1, length: 2 }.into(), vec![&[3, 4, 5]]),
        (Slice { dim: 0, start: 0, length: 2 }.into(), vec![&[3, 4, 5]]),
    ]);
    for (op, sizes) in cases {
        let (op, kernel, operands, results) = typed(op, &sizes);
        let Plan::Elementwise(program) = planned(&kernel, &operands, &results).unwrap() else {
            panic!("{} is no elementwise kernel", op.name());
        };
        let data: Vec<Vec<f32>> = (0..operands.len())
            .map(|t| (0..operands[t].elements()).map(|i| 0.1 + uniform([t as u32, 7], i)).collect())
            .collect();
        let inputs: Vec<&[f32]> = data.iter().map(|x| &x[..]).collect();
        let got = program.evaluate(&inputs, results[0].elements() as usize, Par(1)).unwrap();
        let dims = |ty: &Type| ty.sizes().iter().map(|&size| size as usize).collect::<Vec<_>>();
        let array = |(x, ty): (&Vec<f32>, &Type)| Array::Real(Dense::from_fn(&dims(ty), |i| f64::from(x[i])));
        let given: Vec<Array<f64>> = data.iter().zip(&operands).map(array).collect();
        let context = Context { seed: 0, step: 1, index: 0, microbatch: 0 };
        let want = evaluate(&op, &given.iter().collect::<Vec<_>>(), &[dims(&results[0])], context).unwrap();
        let want = want.into_iter().next().unwrap().into_real().unwrap().data;
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert!((f64::from(*got) - want).abs() <= 1e-5 * want.abs().max(1.0), "{}: {got} is not {want}", op.name());
        }
    }
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
    assert_eq!(planned(&op, &operands, &results), Ok(Plan::Contract(Box::new(want.unwrap()))));
}

#[test]
fn what_is_missing_is_named() {
    let (_, op, operands, results) = typed(RmsNorm { eps: 1e-5 }, &[&[3, 4], &[4]]);
    assert!(!has(&op));
    assert!(planned(&op, &operands, &results).unwrap_err().contains("`rms_norm` has no kernel on the cuda backend"));
    let (_, op, operands, results) = typed(Einsum::new("a b -> b").unwrap(), &[&[4, 5]]);
    assert!(planned(&op, &operands, &results).unwrap_err().contains("einsum of one operand"));
    let narrow = [Type::of(DType::BF16, &[4])];
    assert!(planned(&KernelOp::Unary(Unary(UnaryKind::Neg)), &narrow, &narrow).unwrap_err().contains("bf16"));
}
