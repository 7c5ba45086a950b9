//! Checks of NCCL with a communicator of one rank, the most that one GPU allows: the library loads, and each call moves what it should.

use super::numbers::{encoded, floats};
use super::{Bench, Found, Rows};
use crate::error::Error;
use crate::memory::{Arena, Pinned};
use crate::nccl::{self, Communicator, UniqueId};
use crate::stream::{Event, Stream};
use comm::EngineCall;
use ir::types::{DType, PartialKind};

/// A check: its name, the elements, and its calls between two addresses, of a number of elements.
struct Case {
    what: &'static str,
    dtype: DType,
    calls: fn(u64, u64, usize) -> Vec<EngineCall<u64>>,
}

const SUM: PartialKind = PartialKind::Sum;

const CASES: [Case; 7] = [
    Case {
        what: "NCCL all-reduce, one rank, f32",
        dtype: DType::F32,
        calls: |from, to, len| vec![EngineCall::AllReduce { from, to, len, dtype: DType::F32, kind: SUM }],
    },
    Case {
        what: "NCCL all-reduce, one rank, bf16",
        dtype: DType::BF16,
        calls: |from, to, len| vec![EngineCall::AllReduce { from, to, len, dtype: DType::BF16, kind: SUM }],
    },
    Case {
        what: "NCCL all-reduce of a maximum, one rank, f32",
        dtype: DType::F32,
        calls: |from, to, len| vec![EngineCall::AllReduce { from, to, len, dtype: DType::F32, kind: PartialKind::Max }],
    },
    Case {
        what: "NCCL reduce-scatter, one rank, f32",
        dtype: DType::F32,
        calls: |from, to, len| vec![EngineCall::ReduceScatter { from, to, len, dtype: DType::F32, kind: SUM }],
    },
    Case {
        what: "NCCL all-gather, one rank, f32",
        dtype: DType::F32,
        calls: |from, to, len| vec![EngineCall::AllGather { from, to, bytes: 4 * len }],
    },
    Case {
        what: "NCCL broadcast, one rank, f32",
        dtype: DType::F32,
        calls: |from, to, len| vec![EngineCall::Broadcast { root: 0, from, to, bytes: 4 * len }],
    },
    Case {
        what: "NCCL send and receive, one rank, f32",
        dtype: DType::F32,
        calls: |from, to, len| {
            let bytes = 4 * len;
            vec![EngineCall::Send { to: 0, from, bytes }, EngineCall::Receive { from: 0, to, bytes }]
        },
    },
];

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    if !nccl::is_there() {
        let note = format!("not checked, since there is none of {}", nccl::file_names().join(", "));
        return rows.check("NCCL", "no library", "B/s", || Ok::<_, Error>(Found::results(0.0, 0.0).noted(note)));
    }
    let shape = format!("{} elements", bench.extent.elements);
    for case in &CASES {
        rows.check(case.what, shape.clone(), "B/s", || moved(bench, case, false));
    }
    for case in [&CASES[0], &CASES[6]] {
        rows.check(format!("{}, in a graph", case.what), shape.clone(), "B/s", || moved(bench, case, true));
    }
}

/// Lets a graph do calls in a stream of their own between two events, as steps do, and raise a flag behind them. Returns the seconds.
///
/// # Safety
/// As of [`Communicator::give`]; the flag's source is in a live arena.
unsafe fn in_graph(
    bench: &Bench,
    give: impl Fn(&Stream) -> Result<(), Error>,
    (flag, source): (&mut [u8], u64),
) -> Result<f64, Error> {
    let (side, device) = (Stream::urgent(&bench.device)?, &bench.device);
    let [before, after] = [Event::new(device)?, Event::new(device)?];
    bench.stream.begin_capture()?;
    let given = (|| {
        bench.stream.record(&before)?;
        side.wait(&before)?;
        give(&side)?;
        // SAFETY: as the caller promises.
        unsafe { side.download(flag, source)? };
        side.record(&after)?;
        bench.stream.wait(&after)
    })();
    let graph = bench.stream.end_capture();
    given?;
    let mut graph = graph?;
    bench.seconds(|_| graph.launch())
}

/// The bytes that differ after calls which move all of a buffer, and the rate: what is read and written.
fn moved(bench: &mut Bench, case: &Case, is_graph: bool) -> Result<Found, Error> {
    let (len, size) = (bench.extent.elements, case.dtype.bytes() as usize);
    let sent = encoded(case.dtype, bench.normals(len, 3));
    let arena = Arena::new(&bench.device, 2 * len * size)?;
    let [from, to] = [0, 1].map(|half| arena.address(half * len * size, len * size));
    let communicator = Communicator::begin(&bench.device, UniqueId::new()?, [0, 1])?;
    communicator.settle("joining a communicator of one")?;
    let mut flag = Pinned::new(&bench.device, 1)?;
    // SAFETY: both halves of the arena are used by this stream alone, which is done when they are read.
    let seconds = unsafe {
        bench.staging.write(&bench.stream, from, &sent)?;
        bench.stream.fill(to, 0, len * size)?;
        let give = |stream: &_| communicator.give(stream, (case.calls)(from, to, len).into_iter());
        give(&bench.stream)?;
        if is_graph {
            bench.stream.fill(to, 0, len * size)?;
            flag.bytes_mut()[0] = !sent[0];
            in_graph(bench, give, (flag.bytes_mut(), from))?
        } else {
            bench.seconds(give)?
        }
    };
    let mut got = vec![0; sent.len()];
    // SAFETY: as above.
    unsafe { bench.staging.read(&bench.stream, &mut got, to)? };
    communicator.finish()?;
    let pairs = floats(case.dtype, &got).into_iter().zip(floats(case.dtype, &sent));
    let is_flagged = !is_graph || flag.bytes()[0] == sent[0];
    let wrong = pairs.filter(|(got, sent)| got.to_bits() != sent.to_bits()).count() + usize::from(!is_flagged);
    let found = Found::results(wrong as f64 / len as f64, 0.0).at(2.0 * sent.len() as f64 / seconds, None);
    Ok(found.noted(format!("NCCL {}", nccl::version()?)))
}
