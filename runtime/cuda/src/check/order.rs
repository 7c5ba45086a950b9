//! Checks of the order between streams, and of leaks.

use super::{Bench, Found, Rows};
use crate::error::Error;
use crate::fused::{Buffers, Fused, LaunchArgs};
use crate::matmul::{Formats, Matmul};
use crate::memory::Arena;
use crate::stream::{Event, Stream};
use ir::types::DType;
use kernels::cuda::gemm::Contraction;
use kernels::group::Program;
use kernels::scalar::{Element, Unary};

/// Launches of the producer, one after another: together long enough for the consumer to overtake it.
const STEPS: usize = 200;
/// Launches of the search for leaks.
const REPEATS: usize = 1000;

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    let shape = format!("{STEPS} launches, then a copy");
    rows.check("an event orders two lanes", shape, "B/s", || ordered(bench));
    rows.check("no memory is lost", format!("{REPEATS} launches"), "B/s", || leaks(bench));
}

/// A producer on one stream, a consumer on another that waits for the producer's event. The same without the event is run and
/// reported, but proves nothing either way.
fn ordered(bench: &mut Bench) -> Result<Found, Error> {
    let producer = Stream::new(&bench.device)?;
    let consumer = Stream::new(&bench.device)?;
    let elements = bench.extent.elements;
    let kernel = Fused::new(&bench.device, &Program::unary(Unary::Shift(1.0), Element::F32, elements))?;
    let args = LaunchArgs { elements, ..LaunchArgs::default() };
    let bytes = 4 * elements;
    let arena = Arena::new(&bench.device, 2 * bytes)?;
    let (made, seen) = (arena.address(0, bytes), arena.address(bytes, bytes));
    let event = Event::new(&bench.device)?;
    let mut late = [0; 2];
    for (waits, late) in [true, false].into_iter().zip(&mut late) {
        // SAFETY: the arena was just taken and both streams are done with it. Without the event they race for it, which leaves
        // some of the numbers before the last in `seen`, and harms nothing.
        unsafe {
            producer.fill(made, 0, bytes)?;
            producer.fill(seen, 0, bytes)?;
            producer.finish()?;
            for _ in 0..STEPS {
                kernel.launch(&producer, Buffers { inputs: &[made], outs: &[made], partials: 0 }, args)?;
            }
            producer.record(&event)?;
            if waits {
                consumer.wait(&event)?;
            }
            consumer.copy(seen, made, bytes)?;
        }
        consumer.finish()?;
        producer.finish()?;
        let mut got = vec![0; bytes];
        // SAFETY: as above, and both streams are done.
        unsafe { bench.staging.read(&bench.stream, &mut got, seen)? };
        let got = super::numbers::floats(DType::F32, &got);
        *late = got.iter().filter(|x| **x != STEPS as f32).count();
    }
    let share = |late: usize| late as f64 / elements as f64;
    let note =
        format!("without the event the consumer was too early for {:.0} % of the elements", 100.0 * share(late[1]));
    Ok(Found { note: Some(note), ..Found::results(share(late[0]), 0.0) })
}

/// Bytes of device memory that many launches leak, with all objects created for each launch.
fn leaks(bench: &mut Bench) -> Result<Found, Error> {
    let size = 64;
    let plan = Contraction::new(&['m', 'k'], &['k', 'n'], &['m', 'n'], &[size, size], &[size, size]);
    let gemm = plan.map_err(Error::Program)?.gemm;
    let arena = Arena::new(&bench.device, 3 * 4 * size * size)?;
    let places = [0, 1, 2].map(|i| arena.address(i * 4 * size * size, 4 * size * size));
    let kernel = Fused::new(&bench.device, &Program::unary(Unary::Exp, Element::F32, size * size))?;
    let args = LaunchArgs { elements: size * size, ..LaunchArgs::default() };
    let mut matmul = Matmul::new(&bench.device)?;
    let mut once = |stream: &Stream| -> Result<(), Error> {
        let event = Event::new(&bench.device)?;
        // SAFETY: the places are in the arena and do not overlap; this is the only stream.
        unsafe {
            kernel.launch(stream, Buffers { inputs: &places[..1], outs: &places[1..2], partials: 0 }, args)?;
            matmul.launch(stream, &gemm, Formats::F32, places, false)?;
            stream.copy(places[0], places[1], 4 * size * size)?;
        }
        stream.record(&event)?;
        stream.wait(&event)
    };
    // SAFETY: as above.
    unsafe { bench.stream.fill(places[0], 0, 3 * 4 * size * size)? };
    once(&bench.stream)?;
    bench.stream.finish()?;
    let (before, _) = bench.device.memory()?;
    for _ in 0..REPEATS {
        once(&bench.stream)?;
    }
    bench.stream.finish()?;
    let (after, total) = bench.device.memory()?;
    let lost = before.saturating_sub(after);
    let note = (lost > 0).then(|| format!("{lost} bytes"));
    Ok(Found { note, ..Found::results(lost as f64 / total as f64, 0.0) })
}
