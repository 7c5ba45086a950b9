//! Kernels in CUDA C on this processor: the stand-in for CUDA compiles and runs them, with a model of a GPU's threads.

mod build;

use build::{linked, on_stand_in, succeed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The stand-in, in a folder of its own.
pub(crate) struct StandIn {
    folder: PathBuf,
}

/// A launch of a kernel.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic: u32,
    /// The most bytes of dynamic shared memory that the kernel is allowed before its launch; 0 leaves the default.
    pub(crate) consent: u32,
    /// Each argument is its fields, which leave no gap: one, unless it is a struct.
    pub(crate) arguments: Vec<Vec<Field>>,
}

impl<'a> Launch<'a> {
    /// A launch without dynamic shared memory.
    pub(crate) fn new(kernel: &'a str, grid: [u32; 3], block: [u32; 3], arguments: Vec<Vec<Field>>) -> Launch<'a> {
        Launch { kernel, grid, block, dynamic: 0, consent: 0, arguments }
    }
}

/// A part of an argument of a kernel.
#[derive(Clone)]
pub(crate) enum Field {
    /// An address in a buffer, by the buffer's number and an offset in bytes.
    At(usize, u64),
    /// The bytes of a value.
    Value(Vec<u8>),
}

impl StandIn {
    /// Makes its folder in the target folder, under a name that no other test has.
    pub(crate) fn new(name: &str) -> StandIn {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in");
        let stand_in = StandIn { folder: linked(&sources, name) };
        stand_in.compile(&sources.join("host.c"));
        stand_in
    }

    /// Compiles a program in C that calls the driver. Returns its path.
    pub(crate) fn compile(&self, source: &Path) -> PathBuf {
        let program = self.folder.join(source.file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1"]).arg(source).arg(self.folder.join("libcuda.so"));
        succeed(cc.arg("-o").arg(&program));
        program
    }

    /// Runs launches one after another on buffers, each an allocation of its own. `order` is that of threads and blocks: `forward`,
    /// `reverse`, or the seed of a random one. Returns what the buffers hold at the end.
    ///
    /// # Errors
    /// What the compiler, the driver or the model reports.
    pub(crate) fn run(
        &self,
        source: &str,
        buffers: &[Vec<u8>],
        launches: &[Launch<'_>],
        order: &str,
    ) -> Result<Vec<Vec<u8>>, String> {
        let thread = format!("{:?}", std::thread::current().id());
        let [job, result] = ["job", "result"].map(|name| self.folder.join(format!("{name}-{thread}")));
        fs::write(&job, write_job(source, buffers, launches)).unwrap();
        let mut host = Command::new(self.folder.join("host"));
        on_stand_in(host.args([&job, &result]), &self.folder);
        let ran = host.env("STAND_IN_ORDER", order).output().unwrap();
        if !ran.status.success() {
            return Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr)));
        }
        let held = fs::read(&result).unwrap();
        let mut rest = &held[..];
        let held = buffers.iter().map(|buffer| rest.split_off(..buffer.len()).expect("all buffers").to_vec()).collect();
        assert!(rest.is_empty());
        Ok(held)
    }
}

/// The job that `host.c` reads.
fn write_job(source: &str, buffers: &[Vec<u8>], launches: &[Launch<'_>]) -> Vec<u8> {
    let mut job = Vec::new();
    let number = |job: &mut Vec<u8>, n: u64| job.extend(n.to_le_bytes());
    let bytes = |job: &mut Vec<u8>, bytes: &[u8]| {
        job.extend((bytes.len() as u64).to_le_bytes());
        job.extend(bytes);
    };
    bytes(&mut job, source.as_bytes());
    number(&mut job, buffers.len() as u64);
    buffers.iter().for_each(|buffer| bytes(&mut job, buffer));
    number(&mut job, launches.len() as u64);
    for launch in launches {
        bytes(&mut job, launch.kernel.as_bytes());
        let extents = launch.grid.into_iter().chain(launch.block).chain([launch.dynamic, launch.consent]);
        extents.for_each(|n| number(&mut job, u64::from(n)));
        number(&mut job, launch.arguments.len() as u64);
        for fields in &launch.arguments {
            number(&mut job, fields.len() as u64);
            for field in fields {
                match field {
                    Field::At(buffer, offset) => [1, *buffer as u64, *offset].iter().for_each(|n| number(&mut job, *n)),
                    Field::Value(value) => {
                        number(&mut job, 0);
                        bytes(&mut job, value);
                    }
                }
            }
        }
    }
    job
}
