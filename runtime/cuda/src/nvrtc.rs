//! Run-time compilation of CUDA C to machine code of one architecture. The compiler needs no driver and no GPU.

use super::error::Error;
use super::library::Library;
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString, c_char};

/// Machine code.
pub struct Code {
    /// The binary for the driver to load.
    pub cubin: Vec<u8>,
    /// The output of the compiler and the assembler.
    pub log: String,
}

/// The resources of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The name of the kernel.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
    /// Bytes of a thread's memory, for what has no place in registers.
    pub stack: u32,
    /// Bytes that it spills to memory, stores and loads.
    pub spilled: u32,
}

impl Code {
    /// The resources of each kernel, as the assembler tells them.
    pub fn usages(&self) -> Vec<Usage> {
        self.log.split("Compiling entry function '").skip(1).filter_map(usage).collect()
    }
}

/// The usage in a part of the log that begins with the name of its kernel.
fn usage(log: &str) -> Option<Usage> {
    // The number before a text, or 0 where the log has no such text.
    let number = |after: &str| {
        let before = log.split_once(after)?.0;
        before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    Some(Usage {
        kernel: log.split_once('\'')?.0.to_string(),
        registers: number(" registers")?,
        shared: number(" bytes smem").unwrap_or(0),
        stack: number(" bytes stack frame")?,
        spilled: number(" bytes spill stores")? + number(" bytes spill loads")?,
    })
}

/// A program of NVRTC, destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `create_program`, destroyed once. That it cannot be destroyed is of no consequence.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Compiler options of every kernel. Arithmetic is that of IEEE 754. The assembler reports registers and spills. No kernel uses all
/// shared functions, so that warning 177, of an unused function, is off.
const OPTIONS: [&str; 5] =
    ["--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=--verbose", "--diag-suppress=177"];

/// Compiles a source for an architecture such as `sm_90`. If it `contracts`, a product and a sum may round once; else all results are those
/// of the processor.
///
/// # Errors
/// NVRTC is not there, or refuses the source or the architecture; the error has its log.
pub fn compile(source: &str, arch: &str, contracts: bool) -> Result<Code, Error> {
    if !Library::Nvrtc.is_there() {
        return Err(Error::Missing(vec![Library::Nvrtc]));
    }
    let refused = |why: NvrtcError, log: String| Error::Compile { arch: arch.into(), why: format!("{:?}", why.0), log };
    let text = CString::new(source).map_err(|why| Error::Program(why.to_string()))?;
    let program = result::create_program(&text, None).map_err(|why| refused(why, String::new()))?;
    let program = Program(program);
    let own = [format!("--fmad={contracts}"), format!("--gpu-architecture={arch}")];
    let options: Vec<String> = OPTIONS.iter().map(ToString::to_string).chain(own).collect();
    // SAFETY: the program is alive, and so is the text it was made of.
    let compiled = unsafe { result::compile_program(program.0, &options) };
    let log = log(&program).map_err(|why| refused(why, String::new()))?;
    compiled.map_err(|why| refused(why, log.clone()))?;
    Ok(Code { cubin: cubin(&program).map_err(|why| refused(why, log.clone()))?, log })
}

fn log(program: &Program) -> Result<String, NvrtcError> {
    // SAFETY: the program is alive and has been compiled.
    let log: Vec<c_char> = unsafe { result::get_program_log(program.0) }?;
    let bytes: Vec<u8> = log.iter().map(|&byte| byte as u8).collect();
    Ok(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
}

fn cubin(program: &Program) -> Result<Vec<u8>, NvrtcError> {
    let mut size = 0;
    // SAFETY: the program is alive, and the pointer is to a live integer.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) }.result()?;
    let mut cubin = vec![0u8; size];
    // SAFETY: the buffer has the size that NVRTC asked for.
    unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()) }.result()?;
    Ok(cubin)
}

/// The version of the library, `13.2`.
pub(super) fn version() -> String {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to live integers. A failure leaves 0.0.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_what_kernels_use() {
        let of = |kernel: &str, rest: &str| {
            format!(
                "ptxas info    : Compiling entry function '{kernel}' for 'sm_90'\n\
                 ptxas info    : Function properties for {kernel}\n\
                 ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                 ptxas info    : Used 28 registers, used 1 barriers{rest}\n"
            )
        };
        let log = format!("ptxas info    : 0 bytes gmem\n{}{}", of("group", ", 132 bytes smem"), of("chunks", ""));
        let usage =
            |kernel: &str, shared| Usage { kernel: kernel.into(), registers: 28, shared, stack: 16, spilled: 20 };
        assert_eq!(Code { cubin: Vec::new(), log }.usages(), [usage("group", 132), usage("chunks", 0)]);
        assert_eq!(Code { cubin: Vec::new(), log: String::new() }.usages(), []);
    }
}
