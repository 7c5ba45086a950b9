//! Checks of copies: correctness and bandwidth.

use super::{Bench, Found, Rows};
use crate::error::Error;
use crate::memory::{Arena, Pinned};
use crate::staging::BUFFER;
use crate::stream::Stream;
use ir::types::DType;

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    let long = 4 * bench.extent.elements;
    for bytes in [1, BUFFER, BUFFER + 1, 3 * BUFFER + 5, long] {
        rows.check("host to device and back, staged", format!("{bytes} B"), "B/s", || staged(bench, bytes));
    }
    let shape = format!("{long} B");
    rows.check("pinned host to device", shape.as_str(), "B/s", || pinned(bench, true));
    rows.check("device to pinned host", shape.as_str(), "B/s", || pinned(bench, false));
    rows.check("device to device", shape, "B/s", || on_device(bench));
}

/// The share of bytes that are wrong.
fn wrong(got: &[u8], sent: &[u8]) -> f64 {
    got.iter().zip(sent).filter(|(got, sent)| got != sent).count() as f64 / sent.len() as f64
}

fn sent(bench: &Bench, bytes: usize) -> Vec<u8> {
    let numbers = super::numbers::encoded(DType::F32, &bench.normals);
    // Longer than the stock of numbers, they come again.
    numbers.iter().copied().cycle().take(bytes).collect()
}

fn staged(bench: &mut Bench, bytes: usize) -> Result<Found, Error> {
    let (sent, arena) = (sent(bench, bytes), Arena::new(&bench.device, bytes)?);
    let mut got = vec![0; bytes];
    let at = arena.address(0, bytes);
    let clock = std::time::Instant::now();
    // SAFETY: the arena was just taken; this is the only stream.
    unsafe {
        bench.staging.write(&bench.stream, at, &sent)?;
        bench.staging.read(&bench.stream, &mut got, at)?;
    }
    Ok(Found::results(wrong(&got, &sent), 0.0).at(2.0 * bytes as f64 / clock.elapsed().as_secs_f64(), None))
}

fn pinned(bench: &mut Bench, up: bool) -> Result<Found, Error> {
    let bytes = 4 * bench.extent.elements;
    let (sent, arena) = (sent(bench, bytes), Arena::new(&bench.device, bytes)?);
    let mut host = Pinned::new(&bench.device, bytes)?;
    let mut back = Pinned::new(&bench.device, bytes)?;
    host.bytes_mut().copy_from_slice(&sent);
    let at = arena.address(0, bytes);
    // SAFETY: the arena was just taken; this is the only stream; the host touches its memory when the stream is done.
    let seconds = unsafe {
        bench.stream.upload(at, host.bytes())?;
        bench.stream.download(back.bytes_mut(), at)?;
        bench.seconds(|stream| match up {
            true => stream.upload(at, host.bytes()),
            false => stream.download(back.bytes_mut(), at),
        })?
    };
    bench.stream.finish()?;
    Ok(Found::results(wrong(back.bytes(), &sent), 0.0).at(bytes as f64 / seconds, None))
}

fn on_device(bench: &mut Bench) -> Result<Found, Error> {
    let bytes = 4 * bench.extent.elements;
    let (sent, arena) = (sent(bench, bytes), Arena::new(&bench.device, 2 * bytes)?);
    let (from, to) = (arena.address(0, bytes), arena.address(bytes, bytes));
    // SAFETY: the arena was just taken; this is the only stream; the halves do not overlap.
    let copy = |stream: &Stream| unsafe { stream.copy(to, from, bytes) };
    let mut got = vec![0; bytes];
    // SAFETY: as above.
    unsafe { bench.staging.write(&bench.stream, from, &sent)? };
    copy(&bench.stream)?;
    // SAFETY: as above.
    unsafe { bench.staging.read(&bench.stream, &mut got, to)? };
    let seconds = bench.seconds(copy)?;
    let peak = bench.device.properties().peaks.memory;
    Ok(Found::results(wrong(&got, &sent), 0.0).at(2.0 * bytes as f64 / seconds, peak))
}
