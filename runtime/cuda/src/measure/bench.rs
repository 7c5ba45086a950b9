//! A GPU with random numbers in its memory, and a clock.

use super::median;
use crate::device::Device;
use crate::stream::{Event, Stream};
use crate::{Cuda, Error};
use comm::{Medium, ThreadRole, local_len};
use device::backend::{Backend, GroupPlace, GroupSite, LaunchSite, Memory, Span};
use half::bf16;
use ir::fused::Fused;
use ir::graph::SectionKind;
use ir::types::{DType, Type};
use kernels::cpu::dropout::normal;
use std::sync::Arc;

/// Tensors begin at multiples of this, the alignment of device memory.
const ALIGNED: usize = 256;

/// Most sets of tensors that launches take in turn.
const MOST_TURNS: usize = 16;

/// The longest sequence that is measured.
pub(super) const LONGEST: usize = 8192;

/// Different random numbers. Their number is odd, so that no two rows of a matrix are equal.
const NUMBERS: u64 = (1 << 20) + 1;

/// How much is measured.
pub(super) struct Extent {
    /// True if sizes are small.
    pub(super) quick: bool,
    /// Bytes of all operands, and of all results.
    pub(super) half: usize,
    /// Number of rounds, whose median counts.
    rounds: usize,
    /// Seconds that a round should take.
    round: f64,
    /// Most launches of a round.
    launches: usize,
}

/// 512 MiB hold two operands of 8192 x 8192 in f32. A round takes a thousand times the resolution of the clock, 0.5 us (CUDA Driver API,
/// `cuEventElapsedTime`), and more.
const FULL: Extent = Extent { quick: false, half: 512 << 20, rounds: 5, round: 2e-3, launches: 64 };
const QUICK: Extent = Extent { quick: true, half: 4 << 20, rounds: 1, round: 0.0, launches: 1 };

/// The device, its memory, and its clock. The first half of the memory has operands, the second has results, and behind them are the
/// positions and the segments of tokens.
pub(super) struct Bench {
    pub(super) device: Arc<Device>,
    pub(super) cuda: Cuda,
    pub(super) clock: Clock,
}

/// A stream with two events that know the time.
pub(super) struct Clock {
    pub(super) stream: Arc<Stream>,
    events: [Event; 2],
    pub(super) extent: Extent,
}

/// A timed group.
pub(super) struct Timed {
    pub(super) seconds: f64,
    /// Bytes of operands and results.
    pub(super) bytes: usize,
}

impl Bench {
    pub(super) fn new(device: &Arc<Device>, quick: bool) -> Result<Bench, Error> {
        Bench::with(device, if quick { QUICK } else { FULL })
    }

    /// A device with room for operands and for results, in bytes.
    pub(super) fn of(device: &Arc<Device>, half: usize) -> Result<Bench, Error> {
        Bench::with(device, Extent { half, ..FULL })
    }

    fn with(device: &Arc<Device>, extent: Extent) -> Result<Bench, Error> {
        let mut cuda = Cuda::new(device)?;
        let half = extent.half;
        cuda.reserve(2 * half + 2 * 4 * LONGEST).map_err(Error::Program)?;
        let normals: Vec<u8> = (0..NUMBERS).flat_map(|i| bf16::from_f32(normal([20, 26], i)).to_le_bytes()).collect();
        // Two neighbours in bf16 are a normal number in f32 too: the first has the low bits of its mantissa.
        for start in (0..2 * half).step_by(normals.len()) {
            let part = &normals[..normals.len().min(2 * half - start)];
            cuda.write(Span::new(DType::BF16, start, part.len() / 2), part);
        }
        let tokens: Vec<u8> = (0..LONGEST as i32).chain([0; LONGEST]).flat_map(i32::to_le_bytes).collect();
        cuda.write(Span::new(DType::I32, 2 * half, 2 * LONGEST), &tokens);
        let stream = cuda.medium().stream_of(ThreadRole::Main);
        let events = [Event::timed(device)?, Event::timed(device)?];
        Ok(Bench { device: device.clone(), cuda, clock: Clock { stream, events, extent } })
    }

    /// Times the group that is the one block of a text. With `adds` each result is added to what is there. The first integers of a block
    /// are positions, the second are segments.
    pub(super) fn group(&mut self, text: &str, adds: bool) -> Result<Timed, Error> {
        let model = ir::text::parse(text).map_err(|why| Error::Program(format!("{why:?}")))?.model;
        let block = model.blocks.values().next().ok_or_else(|| Error::Program("there is no block".into()))?;
        let section = &block[SectionKind::F];
        let mut fused = Fused { stmts: section.stmts.clone(), outs: section.ret.clone() };
        fused.stmts.iter_mut().for_each(|stmt| stmt.accumulate = adds);
        let at = GroupPlace { values: &block.values, mesh: &model.mesh, coordinates: &[0], forward: true };
        let mut kernel = GroupSite::with(&fused, at, |site| self.cuda.prepare_group(site)).map_err(Error::Program)?;
        let len = |ty: &Type| local_len(ty, &model.mesh, &[0]);
        let half = self.clock.extent.half;
        let tensors = |values: &[_]| values.iter().map(|&value| &block.values[value].ty).collect::<Vec<_>>();
        let operands = Tensors::new(&tensors(&fused.reads()), len, 0, 2 * half);
        let results = Tensors::new(&tensors(&fused.outs), len, half, 2 * half);
        let turns = [&operands, &results].map(|side| half / side.bytes.max(1)).into_iter().min();
        let turns = turns.unwrap_or(1).clamp(1, MOST_TURNS);
        let flags = vec![true; if adds { fused.stmts.len() } else { 0 }];
        let cuda = &mut self.cuda;
        let seconds = self.clock.seconds(|launch| {
            let [operands, results] = [&operands, &results].map(|side| side.at(launch % turns));
            cuda.launch_group(&mut kernel, LaunchSite::default(), &operands, &results, &flags);
            Ok(())
        })?;
        let bytes = [&operands, &results].map(|side| side.spans.iter().map(|span| span.bytes()).sum::<usize>());
        Ok(Timed { seconds, bytes: bytes.into_iter().sum() })
    }
}

/// Operands, or results.
struct Tensors {
    spans: Vec<Span>,
    /// Bytes from one set to the next.
    bytes: usize,
}

impl Tensors {
    /// Tensors from `start` on; integers are at `tokens`.
    fn new(types: &[&Type], len: impl Fn(&Type) -> usize, start: usize, tokens: usize) -> Tensors {
        let (mut spans, mut end, mut token) = (Vec::new(), start, tokens);
        for ty in types {
            let place = if ty.dtype == DType::I32 { &mut token } else { &mut end };
            let span = Span::new(ty.dtype, *place, len(ty));
            *place += if ty.dtype == DType::I32 { 4 * LONGEST } else { span.bytes().next_multiple_of(ALIGNED) };
            spans.push(span);
        }
        Tensors { spans, bytes: end - start }
    }

    /// The set of a turn.
    fn at(&self, turn: usize) -> Vec<Span> {
        let moved = |span: &Span| match span.dtype {
            DType::I32 => *span,
            _ => Span { offset: span.offset + turn * self.bytes, ..*span },
        };
        self.spans.iter().map(moved).collect()
    }
}

impl Clock {
    /// Seconds of a launch, which gets its number in the round.
    pub(super) fn seconds(&self, mut launch: impl FnMut(usize) -> Result<(), Error>) -> Result<f64, Error> {
        launch(0)?;
        let once = self.round(1, &mut launch)?;
        // A clock that stands still does not make a round endless.
        let launches = ((self.extent.round / once.max(1e-9)) as usize).clamp(1, self.extent.launches);
        let rounds = (0..self.extent.rounds).map(|_| self.round(launches, &mut launch));
        Ok(median(rounds.collect::<Result<_, _>>()?))
    }

    /// Seconds of a launch in a round of some.
    pub(super) fn round(
        &self,
        launches: usize,
        launch: &mut impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let [start, end] = &self.events;
        self.stream.record(start)?;
        (0..launches).try_for_each(launch)?;
        self.stream.record(end)?;
        Ok(start.seconds_to(end)? / launches as f64)
    }
}
