//! Tests of groups against their statements, launched one at a time.

use crate::backend::{Backend, GroupSite, GroupStmt, GroupValue, KernelSite, LaunchSite, Memory, Span};
use crate::backends::cpu::Cpu;
use crate::host;
use ir::mesh::Mesh;
use ir::ops::{Binary, BinaryKind, KernelOp, Reduce, RmsNorm, RmsNormDgamma, Softmax, Unary, UnaryKind};
use ir::types::{DType, PartialKind, Type};
use kernels::cpu::dropout::normal;

/// A statement: its op, and its operands and results as numbers of values.
type Step = (KernelOp, &'static [usize], &'static [usize]);

/// The values that come from elsewhere: two tensors and a row.
const GIVEN: usize = 3;

/// The values that the group leaves; the others of its statements are interior.
const LEFT: [usize; 6] = [3, 5, 7, 8, 9, 10];

/// The values that are sums over rows, and whether they are added to.
const SUMS: [(usize, bool); 2] = [(9, true), (10, false)];

/// A sum, its norm, SwiGLU's product of two, a softmax, and two sums over rows.
fn steps() -> [Step; 7] {
    [
        (KernelOp::Binary(Binary::of(BinaryKind::Add)), &[0, 1], &[3]),
        (KernelOp::RmsNorm(RmsNorm { eps: 1e-5 }), &[3, 2], &[4, 5]),
        (KernelOp::Unary(Unary(UnaryKind::Silu)), &[4], &[6]),
        (KernelOp::Binary(Binary::of(BinaryKind::Mul)), &[6, 3], &[7]),
        (KernelOp::Softmax(Softmax), &[7], &[8]),
        (KernelOp::RmsNormDgamma(RmsNormDgamma), &[3, 5, 7], &[9]),
        (KernelOp::Reduce(Reduce::new(PartialKind::Sum, "r c -> c").unwrap()), &[4], &[10]),
    ]
}

/// The types of all values.
fn types(steps: &[Step], sizes: [u64; 2], dtype: DType) -> Vec<Type> {
    let mut types = vec![Type::of(dtype, &sizes), Type::of(dtype, &sizes), Type::of(dtype, &sizes[1..])];
    for (op, operands, _) in steps {
        let operands = of(&types, operands);
        let mut results = op.def().infer(&operands).unwrap();
        if op.def().rows(&operands).is_some_and(|law| law.sums) {
            // As gradient sums are.
            results[0].dtype = DType::F32;
        }
        types.extend(results);
    }
    types
}

fn of<'t>(types: &'t [Type], values: &[usize]) -> Vec<&'t Type> {
    values.iter().map(|&value| &types[value]).collect()
}

/// A backend with places for all values, and numbers in them.
fn backend(types: &[Type], threads: usize) -> (Cpu, Vec<Span>) {
    let (mut backend, mut spans, mut end) = (Cpu::new(threads), Vec::new(), 0);
    for ty in types {
        spans.push(Span::new(ty.dtype, end, ty.elements() as usize));
        end = (end + ty.bytes() as usize).next_multiple_of(64);
    }
    backend.reserve(end).unwrap();
    backend.begin_step(3, 1);
    for (place, span) in spans.iter().enumerate() {
        let data: Vec<f32> = (0..span.len).map(|i| normal([place as u32, 9], i as u64)).collect();
        backend.write(*span, &host::stored(span.dtype, &data));
    }
    (backend, spans)
}

fn read(backend: &mut Cpu, spans: &[Span]) -> Vec<Vec<u8>> {
    let bytes = |span: &Span| {
        let mut bytes = vec![0; span.bytes()];
        backend.read(*span, &mut bytes);
        bytes
    };
    spans.iter().map(bytes).collect()
}

/// The bytes that the statements leave, launched one at a time.
fn apart(steps: &[Step], types: &[Type]) -> Vec<Vec<u8>> {
    let (mut backend, spans) = backend(types, 1);
    let places = |values: &[usize]| values.iter().map(|&value| spans[value]).collect::<Vec<_>>();
    for (op, operands, results) in steps {
        let sides = [of(types, operands), of(types, results)];
        let mut kernel = backend.prepare(op, &site(&Mesh::default(), &sides)).unwrap();
        let accumulate = SUMS.contains(&(results[0], true));
        backend.launch(&mut kernel, LaunchSite::default(), &places(operands), &places(results), accumulate);
    }
    read(&mut backend, &places(&LEFT))
}

fn site<'a>(mesh: &'a Mesh, [operands, results]: &'a [Vec<&'a Type>; 2]) -> KernelSite<'a> {
    KernelSite { mesh, coordinates: &[], operands, results, forward: true }
}

/// The bytes that the group leaves; its first result is on its second operand.
fn grouped(steps: &[Step], types: &[Type], threads: usize) -> Result<Vec<Vec<u8>>, String> {
    let (mut backend, spans) = backend(types, threads);
    let mesh = Mesh::default();
    let sides: Vec<_> = steps.iter().map(|(_, operands, results)| [of(types, operands), of(types, results)]).collect();
    let value = |&value: &usize| match LEFT.iter().position(|&left| left == value) {
        Some(place) => GroupValue::Result(place),
        None if value < GIVEN => GroupValue::Operand(value),
        None => GroupValue::Interior(value - GIVEN),
    };
    let stmts = steps.iter().zip(&sides).map(|((op, operands, results), sides)| {
        let [operands, results] = [operands, results].map(|values| values.iter().map(value).collect());
        let accumulate = matches!(op, KernelOp::RmsNormDgamma(_) | KernelOp::Reduce(_));
        GroupStmt { op, site: site(&mesh, sides), operands, results, accumulate }
    });
    let mut kernel = backend.prepare_group(&GroupSite { stmts: stmts.collect() })?;
    let mut results = LEFT.map(|value| spans[value]);
    results[0] = spans[1];
    let accumulate = SUMS.map(|(_, adds)| adds);
    backend.launch_group(&mut kernel, LaunchSite::default(), &spans[..GIVEN], &results, &accumulate);
    Ok(read(&mut backend, &results))
}

#[test]
fn groups_equal_their_statements() {
    for dtype in [DType::F32, DType::BF16] {
        // One tile, tiles of which the last one is shorter, and rows longer than a tile.
        for sizes in [[1, 5], [450, 301], [7, 12_000]] {
            let types = types(&steps(), sizes, dtype);
            let expected = apart(&steps(), &types);
            for threads in [1, 2, 3] {
                let got = grouped(&steps(), &types, threads).unwrap();
                assert!(got == expected, "{dtype:?} {sizes:?} on {threads} threads");
            }
        }
    }
}

#[test]
fn rows_that_no_cache_holds_are_refused() {
    let error = grouped(&steps(), &types(&steps(), [2, 100_000], DType::F32), 1).unwrap_err();
    assert_eq!(error, "the interior values of a tile take 13600000 bytes, more than 8388608");
}
