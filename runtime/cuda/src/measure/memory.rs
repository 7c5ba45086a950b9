//! Measurement of memory-bound kernels, copies and launches.

use super::bench::Bench;
use super::median;
use crate::Error;
use crate::memory::{Arena, Pinned};
use device::backend::{Backend, Span};
use ir::types::DType;
use std::time::Instant;

/// Rows and columns of groups: 8192 tokens of Llama 3 8B, and a small size.
const SIZES: [[usize; 2]; 2] = [[8192, 4096], [64, 128]];

/// Launches of a chain, which the driver queues without waiting (1024 at least), and of a quick one.
const CHAIN: [usize; 2] = [256, 8];

/// Rounds of a chain.
const ROUNDS: usize = 5;

/// The typical groups of a layer as blocks: one by elements, one by rows.
const GROUPS: [(&str, &str); 2] = [
    (
        "gate",
        "block @b(%x: bf16[m, h], %y: bf16[m, h]) -> bf16[m, h] {
           %a: bf16[m, h] = silu(%x)
           %b: bf16[m, h] = mul(%a, %y)
           return %b
         }",
    ),
    (
        "sum and norm",
        "block @b(%x: bf16[m, h], %y: bf16[m, h], %g: bf16[h]) -> bf16[m, h], bf16[m, h], f32[m] {
           %a: bf16[m, h] = add(%x, %y)
           %n: bf16[m, h], %r: f32[m] = rms_norm(%a, %g, eps=1e-5)
           return %a, %n, %r
         }",
    ),
];

/// Bytes and seconds of the groups.
pub(super) fn groups(bench: &mut Bench) -> Result<Vec<(&'static str, u64, f64)>, Error> {
    let [m, h] = SIZES[usize::from(bench.clock.extent.quick)];
    let time = |(name, block): &(&'static str, &str)| {
        let timed = bench.group(&format!("mesh @m = [dp=1]\ndims [m={m}, h={h}]\n{block}"), false)?;
        Ok((*name, timed.bytes as u64, timed.seconds))
    };
    GROUPS.iter().map(time).collect()
}

/// Bytes per second that a copy of half of the operands reads and writes.
pub(super) fn copy_bandwidth(bench: &mut Bench) -> Result<f64, Error> {
    let half = bench.clock.extent.half;
    let [from, to] = [0, half].map(|offset| Span::new(DType::F32, offset, half / 8));
    let cuda = &mut bench.cuda;
    let seconds = bench.clock.seconds(|_| {
        cuda.copy(to, from);
        Ok(())
    })?;
    Ok(2.0 * from.bytes() as f64 / seconds)
}

/// Seconds of a launch in a chain of small kernels: of the device, and of the host.
pub(super) fn launches(bench: &mut Bench) -> Result<[f64; 2], Error> {
    let quick = bench.clock.extent.quick;
    let chain = CHAIN[usize::from(quick)];
    let [into, from] = [bench.clock.extent.half, 0].map(|offset| Span::new(DType::F32, offset, 1));
    let cuda = &mut bench.cuda;
    let (mut device, mut host) = (Vec::new(), Vec::new());
    // The first round compiles the kernel.
    for _ in 0..=ROUNDS {
        let (mut began, mut ended) = (Instant::now(), Instant::now());
        device.push(bench.clock.round(chain, &mut |launch| {
            if launch == 0 {
                began = Instant::now();
            }
            cuda.add(into, from);
            ended = Instant::now();
            Ok(())
        })?);
        host.push((ended - began).as_secs_f64() / chain as f64);
    }
    Ok([device, host].map(|rounds| median(rounds[1..].to_vec())))
}

/// Bytes per second from pinned memory of the host, and to it.
pub(super) fn host_bandwidth(bench: &Bench) -> Result<[f64; 2], Error> {
    let bytes = bench.clock.extent.half / 8;
    let (mut host, arena) = (Pinned::new(&bench.device, bytes)?, Arena::new(&bench.device, bytes)?);
    let (at, stream) = (arena.address(0, bytes), &bench.clock.stream);
    // SAFETY: the arena was just taken; this is the only stream, and it is done when the time is known.
    let up = bench.clock.seconds(|_| unsafe { stream.upload(at, host.bytes()) })?;
    // SAFETY: as above.
    let down = bench.clock.seconds(|_| unsafe { stream.download(host.bytes_mut(), at) })?;
    Ok([up, down].map(|seconds| bytes as f64 / seconds))
}
