//! Tests of groups against their statements, launched one at a time.

use crate::Cpu;
use device::backend::{Backend, GroupSite, GroupStmt, GroupValue, KernelSite, LaunchSite, Memory, Span};
use device::host;
use ir::mesh::Mesh;
use ir::ops::{AdamW, Binary, BinaryKind, Dropout, Einsum, Embedding, KernelOp, Piece};
use ir::ops::{Reduce, RmsNorm, RmsNormDgamma, Sgd, Softmax, Unary, UnaryKind};
use ir::types::{DType, PartialKind, Type};
use kernels::cpu::dropout::normal;

/// A statement: its op, and its operands and results as numbers of values.
type Step = (KernelOp, &'static [usize], &'static [usize]);

/// A group. Its values are those from elsewhere, and then the results of its statements.
struct Case {
    steps: Vec<Step>,
    given: usize,
    types: Vec<Type>,
    /// The values that it leaves; the others of its statements are interior.
    left: &'static [usize],
    /// The operand on whose place the first of them is.
    on: Option<usize>,
    /// The values that are sums over rows, and whether they are added to.
    sums: &'static [(usize, bool)],
}

impl Case {
    fn new(given: Vec<Type>, steps: Vec<Step>, left: &'static [usize]) -> Case {
        let mut case = Case { steps, given: given.len(), types: given, left, on: None, sums: &[] };
        for at in 0..case.steps.len() {
            let (op, operands, _) = &case.steps[at];
            let operands = case.of(operands);
            let mut results = op.def().infer(&operands).unwrap();
            if op.def().rows(&operands).is_some_and(|law| law.sums) {
                // As gradient sums are.
                results[0].dtype = DType::F32;
            }
            case.types.extend(results);
        }
        case
    }

    fn of(&self, values: &[usize]) -> Vec<&Type> {
        values.iter().map(|&value| &self.types[value]).collect()
    }

    /// A backend with places for all values, and numbers in them.
    fn backend(&self, threads: usize) -> (Cpu, Vec<Span>) {
        let (mut backend, mut spans, mut end) = (Cpu::new(threads), Vec::new(), 0);
        for ty in &self.types {
            spans.push(Span::new(ty.dtype, end, ty.elements() as usize));
            end = (end + ty.bytes() as usize).next_multiple_of(64);
        }
        backend.reserve(end).unwrap();
        backend.begin_step(3, 1);
        for (place, span) in spans.iter().enumerate() {
            let data: Vec<f32> = (0..span.len)
                .map(|i| match span.dtype {
                    // The table has 4 rows, and no fifth.
                    DType::I32 => f32::from_bits(((3 * i + place) % 5) as u32),
                    // Scalars are positive, with which an update is not skipped.
                    _ if span.len == 1 => normal([place as u32, 9], i as u64).abs(),
                    _ => normal([place as u32, 9], i as u64),
                })
                .collect();
            backend.write(*span, &host::stored(span.dtype, &data));
        }
        (backend, spans)
    }

    /// The bytes that the statements leave, launched one at a time.
    fn apart(&self) -> Vec<Vec<u8>> {
        let (mut backend, spans) = self.backend(1);
        let places = |values: &[usize]| values.iter().map(|&value| spans[value]).collect::<Vec<_>>();
        for (op, operands, results) in &self.steps {
            let sides = [self.of(operands), self.of(results)];
            let mut kernel = backend.prepare(op, &site(&Mesh::default(), &sides)).unwrap();
            let accumulate = self.sums.contains(&(results[0], true));
            backend.launch(&mut kernel, LaunchSite::default(), &places(operands), &places(results), accumulate);
        }
        read(&mut backend, &places(self.left))
    }

    /// The bytes that the group leaves.
    fn grouped(&self, threads: usize) -> Result<Vec<Vec<u8>>, String> {
        let (mut backend, spans) = self.backend(threads);
        let mesh = Mesh::default();
        let sides = self.steps.iter().map(|(_, operands, results)| [self.of(operands), self.of(results)]);
        let sides: Vec<_> = sides.collect();
        let value = |&value: &usize| match self.left.iter().position(|&left| left == value) {
            Some(place) => GroupValue::Result(place),
            None if value < self.given => GroupValue::Operand(value),
            None => GroupValue::Interior(value - self.given),
        };
        let stmts = self.steps.iter().zip(&sides).map(|((op, operands, results), sides)| {
            let accumulate = self.sums.iter().any(|(sum, _)| results.contains(sum));
            let [operands, results] = [operands, results].map(|values| values.iter().map(value).collect());
            GroupStmt { op, site: site(&mesh, sides), operands, results, accumulate }
        });
        let mut kernel = backend.prepare_group(&GroupSite { stmts: stmts.collect() })?;
        let mut results: Vec<Span> = self.left.iter().map(|&value| spans[value]).collect();
        results[0] = self.on.map_or(results[0], |operand| spans[operand]);
        let accumulate: Vec<bool> = self.sums.iter().map(|(_, adds)| *adds).collect();
        backend.launch_group(&mut kernel, LaunchSite::default(), &spans[..self.given], &results, &accumulate);
        Ok(read(&mut backend, &results))
    }

    /// Checks that the group leaves what its statements leave.
    fn check(&self, how: &str) {
        let expected = self.apart();
        for threads in [1, 2, 3] {
            assert!(self.grouped(threads).unwrap() == expected, "{how}, {threads} threads");
        }
    }
}

fn site<'a>(mesh: &'a Mesh, [operands, results]: &'a [Vec<&'a Type>; 2]) -> KernelSite<'a> {
    KernelSite { mesh, coordinates: &[], operands, results, forward: true }
}

fn read(backend: &mut Cpu, spans: &[Span]) -> Vec<Vec<u8>> {
    let bytes = |span: &Span| {
        let mut bytes = vec![0; span.bytes()];
        backend.read(*span, &mut bytes);
        bytes
    };
    spans.iter().map(bytes).collect()
}

fn unary(kind: UnaryKind) -> KernelOp {
    KernelOp::Unary(Unary(kind))
}

fn binary(kind: BinaryKind) -> KernelOp {
    KernelOp::Binary(Binary::of(kind))
}

/// A sum, its norm, SwiGLU's product of two, a softmax, and two sums over rows.
fn rows([rows, columns]: [u64; 2], dtype: DType) -> Case {
    let [tensor, row] = [Type::of(dtype, &[rows, columns]), Type::of(dtype, &[columns])];
    let steps: Vec<Step> = vec![
        (binary(BinaryKind::Add), &[0, 1], &[3]),
        (KernelOp::RmsNorm(RmsNorm { eps: 1e-5 }), &[3, 2], &[4, 5]),
        (unary(UnaryKind::Silu), &[4], &[6]),
        (binary(BinaryKind::Mul), &[6, 3], &[7]),
        (KernelOp::Softmax(Softmax), &[7], &[8]),
        (KernelOp::RmsNormDgamma(RmsNormDgamma), &[3, 5, 7], &[9]),
        (KernelOp::Reduce(Reduce::new(PartialKind::Sum, "r c -> c").unwrap()), &[4], &[10]),
    ];
    let case = Case::new(vec![tensor.clone(), tensor, row], steps, &[3, 5, 7, 8, 9, 10]);
    Case { on: Some(1), sums: &[(9, true), (10, false)], ..case }
}

/// Rows of two tables, their sum, its dropout in the last two slices of three of a sequence, and its norm.
fn tables([samples, tokens, columns]: [u64; 3], dtype: DType) -> Case {
    let given = [
        Type::of(DType::I32, &[samples, tokens]),
        Type::of(DType::I32, &[samples, tokens]),
        Type::of(dtype, &[4, columns]),
        Type::of(dtype, &[columns]),
    ];
    let piece = Some(Piece { origin: tokens / 2, whole: tokens / 2 + tokens });
    let steps: Vec<Step> = vec![
        (KernelOp::Embedding(Embedding::default()), &[0, 2], &[4]),
        (KernelOp::Embedding(Embedding::default()), &[1, 2], &[5]),
        (binary(BinaryKind::Add), &[4, 5], &[6]),
        (KernelOp::Dropout(Dropout { p: 0.4, path: "here".to_string(), piece }), &[6], &[7]),
        (KernelOp::RmsNorm(RmsNorm { eps: 1e-5 }), &[7, 3], &[8, 9]),
    ];
    Case::new(given.to_vec(), steps, &[7, 8, 9])
}

/// A product, its bias, an activation, and a product with another tensor.
fn product([rows, terms, columns]: [u64; 3], dtype: DType, left: &'static [usize]) -> Case {
    let given = [&[2, rows, terms][..], &[terms, columns], &[columns], &[2, rows, columns]];
    let steps: Vec<Step> = vec![
        (KernelOp::Einsum(Einsum::new("b r t, t c -> b r c").unwrap()), &[0, 1], &[4]),
        (KernelOp::Binary(Binary::spread(BinaryKind::Add, "b r c, c -> b r c").unwrap()), &[4, 2], &[5]),
        (unary(UnaryKind::Gelu), &[5], &[6]),
        (binary(BinaryKind::Mul), &[3, 6], &[7]),
        (unary(UnaryKind::Cast(DType::F32)), &[7], &[8]),
    ];
    Case::new(given.map(|sizes| Type::of(dtype, sizes)).to_vec(), steps, left)
}

/// A product, the cotangent of a bias and an activation, which is summed over rows, and the sums of the product and of a tensor.
fn bias_gradient([rows, terms, columns]: [u64; 3], dtype: DType, left: &'static [usize]) -> Case {
    let given = [&[2, rows, terms][..], &[terms, columns], &[2, rows, columns]];
    let sum = || KernelOp::Reduce(Reduce::new(PartialKind::Sum, "b r c -> c").unwrap());
    let steps: Vec<Step> = vec![
        (KernelOp::Einsum(Einsum::new("b r t, t c -> b r c").unwrap()), &[0, 1], &[3]),
        (sum(), &[3], &[4]),
        (binary(BinaryKind::GeluGrad), &[2, 3], &[5]),
        (sum(), &[2], &[6]),
        (sum(), &[5], &[7]),
    ];
    let case = Case::new(given.map(|sizes| Type::of(dtype, sizes)).to_vec(), steps, left);
    Case { sums: &[(4, false), (6, true), (7, true)], ..case }
}

/// An update in place of weights, the first value, and their cast. `updated` are its results and, last, the number of the cast's.
fn update(op: KernelOp, sizes: &[u64], operands: &'static [usize], updated: &'static [usize]) -> Case {
    let (cast, results) = updated.split_last().unwrap();
    let [tensor, scalar] = [Type::of(DType::F32, sizes), Type::scalar(DType::F32)];
    // Each tensor is updated but the gradient.
    let given = operands.iter().map(|&at| if at <= results.len() { &tensor } else { &scalar }).cloned().collect();
    let to_bf16 = unary(UnaryKind::Cast(DType::BF16));
    Case::new(given, vec![(op, operands, results), (to_bf16, &[0], std::slice::from_ref(cast))], updated)
}

#[test]
fn updates_and_casts_in_tiles_are_those_of_the_whole() {
    let adamw = KernelOp::AdamW(AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 });
    let sgd = KernelOp::Sgd(Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.1 });
    for sizes in [[1, 5], [450, 301]] {
        update(adamw.clone(), &sizes, &[0, 1, 2, 3, 4, 5, 6], &[0, 2, 3, 10]).check(&format!("adamw {sizes:?}"));
        update(sgd.clone(), &sizes, &[0, 1, 2, 3, 4], &[0, 2, 7]).check(&format!("sgd {sizes:?}"));
    }
}

#[test]
fn groups_equal_their_statements() {
    for dtype in [DType::F32, DType::BF16] {
        // One tile, tiles of which the last one is shorter, and rows longer than a tile.
        for sizes in [[1, 5], [450, 301], [7, 12_000]] {
            rows(sizes, dtype).check(&format!("{dtype:?} {sizes:?}"));
        }
    }
}

#[test]
fn rows_of_tables_and_random_numbers_are_those_of_the_whole() {
    for dtype in [DType::F32, DType::BF16] {
        for sizes in [[1, 2, 5], [3, 150, 301], [2, 4, 12_000]] {
            tables(sizes, dtype).check(&format!("{dtype:?} {sizes:?}"));
        }
    }
}

#[test]
fn what_follows_a_product_equals_its_statements() {
    for dtype in [DType::F32, DType::BF16] {
        for sizes in [[3, 4, 5], [70, 300, 530], [1, 7, 300], [40, 9, 1], [6, 0, 4]] {
            for left in [&[7][..], &[4, 5, 7], &[8], &[6, 8]] {
                product(sizes, dtype, left).check(&format!("{dtype:?} {sizes:?} {left:?}"));
            }
        }
    }
    // The result is on the tensor that it is multiplied with.
    Case { on: Some(3), ..product([70, 300, 530], DType::F32, &[7]) }.check("in place");
}

#[test]
fn sums_of_rows_of_a_product_equal_their_statements() {
    for dtype in [DType::F32, DType::BF16] {
        // Rows or columns are divided among threads, in numbers that are multiples of a chunk and not.
        for sizes in [[3, 4, 5], [203, 300, 150], [70, 300, 530], [8, 7, 1], [17, 0, 4]] {
            for left in [&[4, 6, 7][..], &[5, 3, 7, 6, 4]] {
                bias_gradient(sizes, dtype, left).check(&format!("{dtype:?} {sizes:?} {left:?}"));
            }
        }
    }
    // The cotangent is in the place of the activation's operand.
    let case = bias_gradient([70, 300, 530], DType::F32, &[5, 4, 7]);
    let steps = case.steps.into_iter().filter(|(_, _, results)| *results != [6]).collect();
    Case { steps, on: Some(2), sums: &[(4, false), (7, true)], ..case }.check("in place");
}

#[test]
fn rows_that_no_cache_holds_are_refused() {
    let error = rows([2, 100_000], DType::F32).grouped(1).unwrap_err();
    assert_eq!(error, "the interior values of a tile take 13600000 bytes, more than 8388608");
}
