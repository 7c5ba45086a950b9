//! Every kernel compiles to machine code, within a budget of registers, without spills, and to the resources of a table. Needs NVRTC and no GPU:
//! `.ci/run` fetches it and runs this with `--ignored`.

#[path = "written/ops.rs"]
mod ops;

use device::backend::{GroupSite, GroupStmt, GroupValue, KernelSite};
use ir::mesh::Mesh;
use ir::ops::{
    AdamW, CrossEntropy, CrossEntropyGrad, Dropout, KernelOp, LayerNorm, LayerNormDx, RmsNorm, RmsNormDgamma,
    RmsNormDx, Rope, Sgd, SoftmaxGrad, UnaryKind,
};
use ir::types::{DType, Type};
use kernels::cuda::exchange::{Combine, combining, moving};
use kernels::cuda::kernel::{GROUP, Kernel};
use kernels::cuda::trials;
use kernels::cuda::written::{BLOCK, Definitions, Written, texts as of_texts};
use kernels::group::Program;
use kernels::scalar::{Access, Binary, Element, Strides, Unary};
use meshwright_cuda::nvrtc::compile;
use meshwright_cuda::plan::{Stage, Work, plan, plan_group};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Ampere, Hopper, Hopper with the instructions that are its own, and Blackwell.
const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_90a", "sm_100"];

/// The compute capability that plans are for.
const HOPPER: (u32, u32) = (9, 0);

/// Registers per thread of kernels on single elements. With 2048 threads on a multiprocessor of 65536 registers there are 32 for each (CUDA
/// C++ Programming Guide, "Technical Specifications per Compute Capability"); half as many threads still keep its memory busy.
const REGISTERS: u32 = 64;
/// Registers of a multiprocessor.
const FILE: u32 = 65_536;

/// Programs on single elements, with their classes.
fn by_elements() -> Vec<(String, Program)> {
    let walk = Access::Strided(Strides { dims: vec![(3, 1), (5, 0), (7, 3)], offset: 2 });
    let long = Access::Strided(Strides { dims: vec![(1 << 20, 1), (1 << 20, 1 << 20)], offset: 1 << 40 });
    let turned = Access::Strided(Strides { dims: vec![(8, 800), (40, 1), (20, 40)], offset: 0 });
    let n = 1000;
    let of = |element| {
        let unary = Unary::ALL.map(|op| Program::unary(op, element, n)).into_iter();
        let same = [(Access::Same, n), (Access::Same, n)];
        let binary = Binary::ALL.map(|op| Program::binary(op, element, same.clone(), n)).into_iter();
        let infinite = Program::unary(Unary::Scale(f32::INFINITY), element, n);
        let simple = unary.chain(binary).chain([Program::copy([element; 2], (Access::Same, n), n), infinite]);
        let strided = [&walk, &long]
            .map(|access| Program::binary(Binary::Mul, element, [(access.clone(), n), (Access::One, 1)], n));
        let tiles = Program::copy([element; 2], (turned.clone(), 6400), 6400);
        let named = |class: &str, program| (format!("{class} {element:?}").to_lowercase(), program);
        let simple = simple.map(move |program| named("elements", program));
        simple
            .chain(strided.map(|program| named("strided", program)))
            .chain([named("tiles", tiles)])
            .collect::<Vec<_>>()
    };
    [Element::F32, Element::Bf16, Element::F16, Element::F8E4M3, Element::F8E5M2].into_iter().flat_map(of).collect()
}

/// Kernels by rows, of a width in the registers of a warp, of a block, and beyond registers.
fn by_rows() -> Vec<(String, Program)> {
    let mut programs = Vec::new();
    for width in [768, 4096, 50_257] {
        let (x, row, column) = ([64, width], [64], [width]);
        let (x, row, column) = (&x[..], &row[..], &column[..]);
        let ops: [(KernelOp, &[&[u64]]); 10] = [
            (KernelOp::RmsNorm(RmsNorm { eps: 1e-5 }), &[x, column]),
            (KernelOp::RmsNormDx(RmsNormDx), &[x, column, row, x]),
            (KernelOp::RmsNormDgamma(RmsNormDgamma), &[x, row, x]),
            (KernelOp::LayerNorm(LayerNorm { eps: 1e-5 }), &[x, column, column]),
            (KernelOp::LayerNormDx(LayerNormDx), &[x, column, row, row, x]),
            (KernelOp::SoftmaxGrad(SoftmaxGrad), &[x, x]),
            (KernelOp::CrossEntropy(CrossEntropy), &[x, row]),
            (KernelOp::CrossEntropyGrad(CrossEntropyGrad), &[x, row, row, &[]]),
            (KernelOp::Dropout(Dropout { p: 0.1, path: "a.b".into(), piece: None }), &[x]),
            (
                KernelOp::Rope(Rope { theta: 1e4, scaling: None, turned: None, gain: 1.0, inverse: false }),
                &[&[8, 8, 4, 64], &[8, 8]],
            ),
        ];
        for (op, sizes) in &ops {
            programs.extend(planned(op, sizes).into_iter().map(|program| {
                let is_flat = Kernel::new(&program).unwrap().shape.elements.is_some();
                let name = op.def().name();
                (if is_flat { format!("elements {name}") } else { format!("rows {name} {width}") }, program)
            }));
        }
    }
    programs
}

/// The programs of an op on tensors of bf16; rows have numbers in f32, and labels and positions are integers.
fn planned(op: &KernelOp, sizes: &[&[u64]]) -> Vec<Program> {
    let is_int = |at| at == 1 && matches!(op.def().name(), "cross_entropy" | "cross_entropy_grad" | "rope");
    let dtype = |at, sizes: &[u64]| match sizes.len() {
        _ if is_int(at) => DType::I32,
        2.. => DType::BF16,
        1 if sizes[0] > 64 => DType::BF16,
        _ => DType::F32,
    };
    let operands: Vec<Type> = sizes.iter().enumerate().map(|(at, sizes)| Type::of(dtype(at, sizes), sizes)).collect();
    let operands: Vec<&Type> = operands.iter().collect();
    let results = op.def().infer(&operands).unwrap();
    let (mesh, results) = (Mesh::default(), results.iter().collect::<Vec<_>>());
    let site = KernelSite { mesh: &mesh, coordinates: &[], operands: &operands, results: &results, forward: true };
    let program = |stage: Stage| match stage.work {
        Work::Kernel(program) => *program,
        work => panic!("{work:?} by rows"),
    };
    plan(op, &site, HOPPER).unwrap().stages.into_iter().map(program).collect()
}

/// The most bytes that a thread of a small block spills: those of the gradient of attention with large heads.
const SPILLED: u32 = 192;

/// A text.
struct Text {
    /// The class of its generated kernels; none if they are written by hand.
    class: Option<String>,
    source: String,
    /// True if a product and a sum may round once.
    contracts: bool,
    /// The most registers of a thread.
    registers: u32,
    /// True if it may spill a few bytes: of blocks that are smaller than usual the assembler holds more at a time.
    spills: bool,
}

/// All texts, each once.
fn texts() -> Vec<Text> {
    let mut texts = Vec::new();
    for (class, program) in by_elements().into_iter().chain(by_rows()) {
        let kernel = Kernel::new(&program).unwrap();
        // Those by rows hold what they read again; a block of them fits on a multiprocessor.
        let registers = if kernel.shape.elements.is_some() { REGISTERS } else { FILE / kernel.shape.block };
        let (source, registers) = (kernel.source, registers.min(255));
        texts.push(Text { class: Some(class), source, contracts: false, registers, spills: false });
    }
    let mut known = HashSet::new();
    texts.retain(|text| known.insert(text.source.clone()));
    texts.extend(by_hand());
    texts
}

/// The texts that are written by hand, each once.
fn by_hand() -> Vec<Text> {
    let mut works: Vec<Written> = trials::all().into_iter().map(|trial| trial.work).collect();
    let attention = |settings: &str, format, sizes| {
        ops::attentions(&format!("scale=0.1, causal=true{settings}"), format, sizes, true)
    };
    let kinds = [
        ("", 64),
        ("", 128),
        (", p=0.1, path=\"a\"", 128),
        (", window=1024", 128),
        (", softcap=50.0, window=1024", 128),
    ];
    let large = kinds.into_iter().flat_map(|(settings, d)| attention(settings, "bf16", [2, 4096, 4096, 8, 4, d, d]));
    for case in ops::rows().into_iter().chain(large).chain(attention("", "f16", [2, 41, 37, 2, 3, 16, 48])) {
        let plan = case.with_site(|site| plan(site.stmts[0].op, &site.stmts[0].site, HOPPER)).unwrap();
        works.extend(plan.stages.into_iter().filter_map(|stage| match stage.work {
            Work::Written(written) => Some(*written),
            _ => None,
        }));
    }
    works.extend(copying_updates());
    // By text, the threads of its smallest and its largest blocks.
    let mut texts: BTreeMap<(&str, bool), [usize; 2]> = BTreeMap::new();
    for Written { source, contracts, threads, .. } in &works {
        let [least, most] = texts.entry((source, *contracts)).or_insert([*threads; 2]);
        (*least, *most) = ((*threads).min(*least), (*threads).max(*most));
    }
    let exchange =
        |source| Text { class: None, source, contracts: false, registers: FILE / BLOCK as u32, spills: false };
    let moves = [1, 2, 4, 8, 16].map(moving);
    let sums = [(Element::F32, 4), (Element::Bf16, 8), (Element::F16, 1), (Element::I32, 4)];
    let sums = sums
        .into_iter()
        .flat_map(|(element, width)| [Combine::Sum, Combine::Max].map(|kind| combining(element, kind, width)));
    let exchanges = moves.into_iter().chain(sums).map(exchange);
    let text = |((source, contracts), [least, most]): ((&str, bool), [usize; 2])| {
        let (source, registers, spills) = (source.to_string(), FILE / most as u32, least < BLOCK);
        Text { class: None, source, contracts, registers, spills }
    };
    texts.into_iter().map(text).chain(exchanges).collect()
}

/// Updates that leave a copy of the weights in another format.
fn copying_updates() -> Vec<Written> {
    use GroupValue::{Operand, Result};
    let adamw = KernelOp::AdamW(AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 });
    let sgd = |momentum, nesterov| KernelOp::Sgd(Sgd { momentum, nesterov, weight_decay: 0.1 });
    let (mesh, tensor, scalar) = (Mesh::default(), Type::of(DType::F32, &[1000]), Type::scalar(DType::F32));
    let planned = |(op, tensors, to): (KernelOp, usize, DType)| {
        let (copy, cast) = (Type::of(to, &[1000]), KernelOp::Unary(ir::ops::Unary(UnaryKind::Cast(to))));
        let (updated, scalars) = (op.def().facts().updates, if let KernelOp::AdamW(_) = op { 3 } else { 2 });
        let types = [vec![&tensor; tensors], vec![&scalar; scalars]].concat();
        let results = vec![&tensor; updated.len()];
        let value = |at: usize| updated.iter().position(|&of| of == at).map_or(Operand(at), Result);
        let site = |operands, results| KernelSite { mesh: &mesh, coordinates: &[], operands, results, forward: false };
        let update = GroupStmt {
            op: &op,
            site: site(&types, &results),
            operands: (0..types.len()).map(value).collect(),
            results: (0..updated.len()).map(Result).collect(),
            accumulate: false,
        };
        let (from, to) = ([&tensor], [&copy]);
        let (operands, results) = (vec![Result(0)], vec![Result(updated.len())]);
        let cast = GroupStmt { op: &cast, site: site(&from, &to), operands, results, accumulate: false };
        let plan = plan_group(&GroupSite { stmts: vec![update, cast] }, HOPPER).unwrap();
        plan.stages.into_iter().map(|stage| match stage.work {
            Work::Written(written) => *written,
            work => panic!("{work:?} after an update"),
        })
    };
    let ops = [
        (adamw.clone(), 4, DType::BF16),
        (adamw, 4, DType::F16),
        (sgd(0.0, false), 2, DType::BF16),
        (sgd(0.9, false), 3, DType::BF16),
        (sgd(0.9, true), 3, DType::BF16),
    ];
    ops.into_iter().flat_map(|op| planned(op).collect::<Vec<_>>()).collect()
}

/// By class or name, the most registers and bytes of shared memory that a kernel of it has.
type Rows = BTreeMap<String, (u32, u32)>;

/// Compiles all texts for an architecture.
fn compiled(texts: &[Text], arch: &str) -> Rows {
    let mut rows = Rows::new();
    for Text { class, source, contracts, registers, spills } in texts {
        let code = compile(source, arch, *contracts).unwrap_or_else(|why| panic!("{why}\n{source}"));
        assert!(!code.log.contains("warning"), "{}\n{source}", code.log);
        let usages = code.usages();
        assert_eq!(
            usages.len(),
            source.matches("extern \"C\" __global__").count(),
            "the assembler tells of each:\n{}",
            code.log
        );
        for usage in usages {
            let name = match class {
                Some(class) if usage.kernel == GROUP => class.clone(),
                Some(class) => format!("{class}, {}", usage.kernel),
                None => usage.kernel.clone(),
            };
            assert!(
                usage.registers <= *registers && usage.spilled <= if *spills { SPILLED } else { 0 },
                "{arch}, {name}: {usage:?}\n{source}"
            );
            // A row is in registers; the library's sine and cosine, of elements, have an array in a thread's memory.
            assert!(usage.stack == 0 || !name.starts_with("rows"), "{arch}, {name}: {usage:?}\n{source}");
            let most = rows.entry(name).or_default();
            *most = (most.0.max(usage.registers), most.1.max(usage.shared));
        }
    }
    rows
}

/// The table in `registers.txt`: `BLESS=1` rewrites it.
#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn kernels_compile_within_their_budget_to_what_the_table_says() {
    let texts = texts();
    let rows = std::thread::scope(|scope| {
        let threads = ARCHITECTURES.map(|arch| scope.spawn(|| compiled(&texts, arch)));
        threads.map(|thread| thread.join().unwrap())
    });
    let mut table = format!(
        "{:32}{}\n",
        "registers, shared memory in bytes",
        ARCHITECTURES.map(|arch| format!("{arch:>13}")).concat()
    );
    for name in rows[0].keys() {
        let cells = rows.each_ref().map(|rows| {
            let (registers, shared) = rows[name];
            format!("{registers:>6}{shared:>7}")
        });
        table += &format!("{name:32}{}\n", cells.concat());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/registers.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let told = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(told == table, "{} says something else than\n{table}", path.display());
}

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn kernels_that_test_the_model_of_a_gpu_are_cuda() {
    let right = include_str!("../../../kernels/tests/gpu_model/right.cu");
    let wrong = include_str!("../../../kernels/tests/gpu_model/wrong.cu");
    let early = include_str!("../../../kernels/tests/gpu_model/early.cu");
    let early = Definitions::new().kernel(&[of_texts::INSTRUCTIONS, early].concat(), "no_wait", 1).source;
    for arch in ARCHITECTURES {
        for text in [right, wrong, &early] {
            let code = compile(text, arch, false).unwrap_or_else(|why| panic!("{why}"));
            assert!(!code.log.contains("warning"), "{}", code.log);
        }
    }
}

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn what_does_not_compile_is_told_with_the_log() {
    let why = compile("extern \"C\" __global__ void f() { undefined(); }", "sm_80", false)
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(why.contains("sm_80") && why.contains("undefined"), "{why}");
}
