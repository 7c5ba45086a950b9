//! Every generated kernel compiles to machine code, within a budget of registers and without spills. Needs NVRTC and no GPU:
//! `.ci/run` fetches it and runs this with `--ignored`.

#[path = "written/ops.rs"]
mod ops;

use ir::mesh::Mesh;
use ir::ops::{
    CrossEntropy, CrossEntropyGrad, Dropout, KernelOp, LayerNorm, LayerNormDx, RmsNorm, RmsNormDgamma, RmsNormDx, Rope,
    SoftmaxGrad,
};
use ir::types::{DType, Type};
use kernels::cuda::kernel::Kernel;
use kernels::cuda::written::BLOCK;
use kernels::group::Program;
use kernels::scalar::{Access, Binary, Element, Strides, Unary};
use meshwright_runtime::backend::KernelSite;
use meshwright_runtime::backends::cuda::nvrtc::{Code, compile};
use meshwright_runtime::backends::cuda::plan::{Stage, Work, plan};
use std::collections::HashSet;
use std::thread;

/// Ampere, Hopper and Blackwell.
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// Registers per thread of kernels on single elements. With 2048 threads on a multiprocessor of 65536 registers there are 32 for each (CUDA
/// C++ Programming Guide, "Technical Specifications per Compute Capability"); half as many threads still keep its memory busy.
const REGISTERS: u32 = 64;
/// Registers of a multiprocessor.
const FILE: u32 = 65_536;

fn programs() -> Vec<Program> {
    let walk = Access::Strided(Strides { dims: vec![(3, 1), (5, 0), (7, 3)], offset: 2 });
    let long = Access::Strided(Strides { dims: vec![(1 << 20, 1), (1 << 20, 1 << 20)], offset: 1 << 40 });
    let n = 1000;
    let compile = |element| {
        let unary = Unary::ALL.map(|op| Program::unary(op, element, n)).into_iter();
        let same = [(Access::Same, n), (Access::Same, n)];
        let binary = Binary::ALL.map(|op| Program::binary(op, element, same.clone(), n)).into_iter();
        let strided = [&walk, &long]
            .map(|access| Program::binary(Binary::Mul, element, [(access.clone(), n), (Access::One, 1)], n))
            .into_iter();
        let infinite = Program::unary(Unary::Scale(f32::INFINITY), element, n);
        unary.chain(binary).chain(strided).chain([Program::copy([element; 2], (Access::Same, n), n), infinite])
    };
    [Element::F32, Element::Bf16, Element::F16].into_iter().flat_map(compile).collect()
}

/// Kernels by rows, of a width in the registers of a warp, of a block, and beyond registers.
fn by_rows() -> Vec<Program> {
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
            (KernelOp::Rope(Rope { theta: 1e4, scaling: None, inverse: false }), &[&[8, 8, 4, 64], &[8, 8]]),
        ];
        programs.extend(ops.iter().flat_map(|(op, sizes)| planned(op, sizes)));
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
    plan(op, &site).unwrap().stages.into_iter().map(program).collect()
}

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn generated_kernels_compile_within_their_budget() {
    on_all_architectures(|arch| {
        let (mut most, mut count) = (0, 0);
        for program in programs().into_iter().chain(by_rows()) {
            count += 1;
            let kernel = Kernel::new(&program).unwrap();
            // Those by rows hold what they read again; a block of them fits on a multiprocessor.
            let most_registers = if kernel.shape.elements.is_some() { REGISTERS } else { FILE / kernel.shape.block };
            let text = kernel.source;
            let code = compile(&text, arch).unwrap_or_else(|why| panic!("{why}\n{text}"));
            let (registers, spilled) = budget(&code);
            let fits = registers <= most_registers.min(255) && spilled == 0;
            assert!(fits, "{arch}: {registers} registers, {spilled} bytes spilled\n{text}");
            assert!(!code.log.contains("warning"), "{}", code.log);
            most = most.max(registers);
        }
        println!("{arch}: {count} programs, at most {most} registers");
    });
}

/// Calls a check for each architecture, each on a thread of its own.
fn on_all_architectures(check: impl Fn(&'static str) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for arch in ARCHITECTURES {
            scope.spawn(move || check(arch));
        }
    });
}

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn written_kernels_compile() {
    let mut texts = HashSet::new();
    for case in ops::cases() {
        let plan = case.with_site(|site| plan(site.stmts[0].op, &site.stmts[0].site)).unwrap();
        texts.extend(plan.stages.into_iter().filter_map(|stage| match stage.work {
            Work::Written(written) => Some(written.source),
            _ => None,
        }));
    }
    on_all_architectures(|arch| {
        for text in &texts {
            let code = compile(text, arch).unwrap_or_else(|why| panic!("{why}\n{text}"));
            let (registers, spilled) = budget(&code);
            assert!(registers <= FILE / BLOCK as u32 && spilled == 0, "{arch}: {registers}, {spilled} spilled\n{text}");
            assert!(!code.log.contains("warning"), "{}\n{text}", code.log);
        }
    });
}

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn kernels_that_test_the_model_of_a_gpu_are_cuda() {
    let right = include_str!("../../kernels/tests/gpu_model/right.cu");
    let wrong = include_str!("../../kernels/tests/gpu_model/wrong.cu");
    for arch in ARCHITECTURES {
        for text in [right, wrong] {
            let code = compile(text, arch).unwrap_or_else(|why| panic!("{why}"));
            assert!(!code.log.contains("warning"), "{}", code.log);
        }
    }
}

fn budget(code: &Code) -> (u32, u32) {
    let told = code.registers().zip(code.spilled_bytes());
    told.unwrap_or_else(|| panic!("the assembler told no registers:\n{}", code.log))
}

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn what_does_not_compile_is_told_with_the_log() {
    let why =
        compile("extern \"C\" __global__ void f() { undefined(); }", "sm_80").map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("sm_80") && why.contains("undefined"), "{why}");
}
