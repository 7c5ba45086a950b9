//! Checks of the instructions that kernels use through wrappers, each alone: they give what plain arithmetic gives.

use super::numbers::floats;
use super::{Bench, Found, Rows};
use crate::error::Error;
use crate::memory::Arena;
use crate::text::Text;
use ir::types::DType;
use kernels::cuda::trials::{self, Trial};

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    for trial in trials::all() {
        rows.check(trial.what, "a warp", "B/s", || tried(bench, &trial));
    }
}

fn tried(bench: &mut Bench, trial: &Trial) -> Result<Found, Error> {
    let kernel = Text::new(&bench.device, &trial.work)?;
    let out = 4 * trial.right.len();
    let sizes: Vec<usize> = trial.operands.iter().map(Vec::len).chain([out]).collect();
    // Each buffer begins at a multiple of 256 bytes.
    let mut starts = vec![0];
    starts.extend(sizes.iter().scan(0, |end, size| {
        *end += size.next_multiple_of(256);
        Some(*end)
    }));
    let arena = Arena::new(&bench.device, starts[sizes.len()])?;
    let addresses: Vec<u64> = sizes.iter().zip(&starts).map(|(size, start)| arena.address(*start, *size)).collect();
    for (operand, at) in trial.operands.iter().zip(&addresses) {
        // SAFETY: the buffer was just taken.
        unsafe { bench.staging.write(&bench.stream, *at, operand)? };
    }
    let (operands, result) = addresses.split_at(trial.operands.len());
    let mut got = vec![0; out];
    // SAFETY: all buffers are in the arena and as long as the kernel reads and writes; this is the only stream.
    unsafe {
        kernel.launch(&bench.stream, &[operands.to_vec(), result.to_vec()], 0, [0; 3])?;
        bench.staging.read(&bench.stream, &mut got, result[0])?;
    }
    Ok(Found::results(trial.error(&floats(DType::F32, &got)), trial.bound))
}
