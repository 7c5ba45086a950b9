//! Every generated kernel compiles to machine code, within a budget of registers and without spills. Needs NVRTC and no GPU:
//! `.ci/run` fetches it and runs this with `--ignored`.

use kernels::cuda::kernel::Kernel;
use kernels::group::Program;
use kernels::scalar::{Access, Binary, Element, Strides, Unary};
use meshwright_runtime::backends::cuda::nvrtc::{Code, compile};

/// Ampere, Hopper and Blackwell.
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// Registers per thread of kernels on single elements. With 2048 threads on a multiprocessor of 65536 registers there are 32 for each (CUDA
/// C++ Programming Guide, "Technical Specifications per Compute Capability"); half as many threads still keep its memory busy.
const REGISTERS: u32 = 64;

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

#[test]
#[ignore = "needs NVRTC: .ci/run fetches it"]
fn generated_kernels_compile_within_their_budget() {
    for arch in ARCHITECTURES {
        let mut most = 0;
        for program in programs() {
            let text = Kernel::new(&program).unwrap().source;
            let code = compile(&text, arch).unwrap_or_else(|why| panic!("{why}\n{text}"));
            let (registers, spilled) = budget(&code);
            let fits = registers <= REGISTERS && spilled == 0;
            assert!(fits, "{arch}: {registers} registers, {spilled} bytes spilled\n{text}");
            assert!(!code.log.contains("warning"), "{}", code.log);
            most = most.max(registers);
        }
        println!("{arch}: {} programs, at most {most} registers", programs().len());
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
