//! Arguments of a kernel call. Kernels compute in f32: narrow operands are widened before the call, narrow results rounded after
//! it.

use super::Rng;
use device::arena::{Arena, Stored};
use device::backend::Span;
use device::host::narrow;
use kernels::cpu::elementwise::add_assign;
use kernels::cpu::narrow::{Floats, FloatsMut, Narrow, round, widen};
use kernels::cpu::{Par, Source};

/// An operand or a result in f32 beside the arena, if it is used. It grows to the largest tensor and stays.
#[derive(Default)]
pub(super) struct Buffer {
    data: Vec<f32>,
    is_used: bool,
}

impl Buffer {
    /// Makes room for a tensor, or leaves it unused.
    fn take(&mut self, len: Option<usize>) {
        self.is_used = len.is_some();
        if let Some(len) = len {
            self.data.resize(len, 0.0);
        }
    }
}

/// The buffers of a thread's launches.
#[derive(Default)]
pub(super) struct Buffers {
    operands: Vec<Buffer>,
    results: Vec<Buffer>,
    /// Buffer for a sum in a narrow format.
    sum: Vec<f32>,
    /// The operands of a contraction times their scales.
    dequantised: [Vec<f32>; 2],
}

/// How a kernel takes its operands and its results.
#[derive(Clone, Copy)]
pub(super) struct Access {
    /// It reads narrow operands as they are.
    pub(super) takes_narrow: bool,
    /// It writes narrow results as they are.
    pub(super) gives_narrow: bool,
    /// The kernel reads what its results hold.
    pub(super) reads: bool,
    /// The kernel writes beside what is there, and its result is added.
    pub(super) adds_after: bool,
}

impl Buffers {
    /// Widens operands, and makes room for results that do not go to their places straight.
    ///
    /// # Safety
    /// Nobody else writes the operands or touches the results now.
    pub(super) unsafe fn fill(&mut self, arena: &Arena, [operands, results]: [&[Span]; 2], how: Access, par: Par) {
        let enough = |buffers: &mut Vec<Buffer>, count: usize| {
            if buffers.len() < count {
                buffers.resize_with(count, Buffer::default);
            }
        };
        enough(&mut self.operands, operands.len());
        enough(&mut self.results, results.len());
        for (buffer, &span) in self.operands.iter_mut().zip(operands) {
            let format = narrow(span.dtype).filter(|_| !how.takes_narrow);
            buffer.take(format.map(|_| span.len));
            if let Some(format) = format {
                // SAFETY: by the caller's contract.
                widen(format, unsafe { arena.bytes(span) }, &mut buffer.data, par);
            }
        }
        for (buffer, &span) in self.results.iter_mut().zip(results) {
            let format = narrow(span.dtype).filter(|_| !how.gives_narrow);
            buffer.take((format.is_some() || how.adds_after).then_some(span.len));
            if let Some(format) = format.filter(|_| how.reads) {
                // SAFETY: by the caller's contract.
                widen(format, unsafe { arena.bytes(span) }, &mut buffer.data, par);
            }
        }
    }

    /// `into += from`, in f32.
    ///
    /// # Safety
    /// The two are apart, and nobody else writes `from` or touches `into` now.
    pub(super) unsafe fn add(&mut self, arena: &Arena, into: Span, from: Span, par: Par) {
        // SAFETY: by the caller's contract.
        unsafe {
            self.fill(
                arena,
                [&[from], &[]],
                Access { takes_narrow: false, gives_narrow: false, reads: false, adds_after: true },
                par,
            );
            let Buffers { operands, sum, .. } = self;
            let from = if operands[0].is_used { &operands[0].data } else { arena.elements(from) };
            match narrow(into.dtype) {
                None => add_assign(arena.elements_mut(into), from, par),
                Some(_) => add_narrow(arena, into, from, sum, par),
            }
        }
    }

    /// Puts results in their places.
    ///
    /// # Safety
    /// Nobody else touches the results now.
    pub(super) unsafe fn empty(&mut self, arena: &Arena, results: &[Span], how: Access, par: Par) {
        let Buffers { results: buffers, sum, .. } = self;
        for (buffer, &span) in buffers.iter().zip(results).filter(|(buffer, _)| buffer.is_used) {
            match (narrow(span.dtype), how.adds_after) {
                // SAFETY: by the caller's contract.
                (None, _) => add_assign(unsafe { arena.elements_mut(span) }, &buffer.data, par),
                // SAFETY: as above.
                (Some(_), true) => unsafe { add_narrow(arena, span, &buffer.data, sum, par) },
                // SAFETY: as above.
                (Some(format), false) => round(format, &buffer.data, unsafe { arena.bytes_mut(span) }, par),
            }
        }
    }
}

/// Adds numbers to a narrow tensor in f32 and rounds the sums once.
///
/// # Safety
/// Nobody else touches the tensor now.
unsafe fn add_narrow(arena: &Arena, into: Span, from: &[f32], sum: &mut Vec<f32>, par: Par) {
    let Some(format) = narrow(into.dtype) else { return };
    sum.resize(into.len, 0.0);
    // SAFETY: by the caller's contract.
    let into = unsafe { arena.bytes_mut(into) };
    widen(format, into, sum, par);
    add_assign(sum, from, par);
    round(format, sum, into, par);
}

/// Arguments of a kernel call.
pub(super) struct Call<'a> {
    arena: &'a Arena,
    operands: &'a [Span],
    results: &'a [Span],
    wide: &'a [Buffer],
    made: &'a mut [Buffer],
    pub(super) rng: Rng,
    pub(super) accumulate: bool,
    pub(super) scratch: &'a mut Vec<f32>,
    /// Buffers for the operands of a contraction times their scales.
    pub(super) dequantised: &'a mut [Vec<f32>; 2],
}

impl<'a> Call<'a> {
    pub(super) fn new(
        arena: &'a Arena,
        [operands, results]: [&'a [Span]; 2],
        buffers: &'a mut Buffers,
        (rng, accumulate): (Rng, bool),
        scratch: &'a mut Vec<f32>,
    ) -> Call<'a> {
        let Buffers { operands: wide, results: made, dequantised, .. } = buffers;
        Call { arena, operands, results, wide, made, rng, accumulate, scratch, dequantised }
    }

    /// An operand's numbers.
    pub(super) fn float(&self, operand: usize) -> &'a [f32] {
        match &self.wide[operand] {
            buffer if buffer.is_used => &buffer.data,
            _ => self.elements(operand),
        }
    }

    /// An operand's numbers in whatever format they are.
    pub(super) fn floats(&self, operand: usize) -> Floats<'a> {
        match narrow(self.operands[operand].dtype) {
            Some(format) if !self.wide[operand].is_used => Floats::Narrow(format, self.bytes(operand)),
            _ => Floats::Wide(self.float(operand)),
        }
    }

    /// An operand whose place the result may have.
    pub(super) fn source(&self, operand: usize) -> Source<'a> {
        let is_own = self.results[0] == self.operands[operand] && !self.wide[operand].is_used && !self.made[0].is_used;
        if is_own { Source::Own } else { Source::Other(self.float(operand)) }
    }

    /// An operand's integers.
    pub(super) fn int(&self, operand: usize) -> &'a [i32] {
        self.elements(operand)
    }

    /// A scalar operand.
    pub(super) fn scalar(&self, operand: usize) -> f32 {
        self.float(operand)[0]
    }

    /// An operand's elements as they are stored.
    pub(super) fn elements<T: Stored>(&self, operand: usize) -> &'a [T] {
        // SAFETY: no result meets it, and the program lets nobody else write it now.
        unsafe { self.arena.elements(self.apart(operand)) }
    }

    fn bytes(&self, operand: usize) -> &'a [u8] {
        // SAFETY: as in `elements`.
        unsafe { self.arena.bytes(self.apart(operand)) }
    }

    /// The place of an operand, where no result goes.
    fn apart(&self, operand: usize) -> Span {
        let span = self.operands[operand];
        let meets = |(place, buffer): (&Span, &Buffer)| !buffer.is_used && place.meets(span);
        assert!(!self.results.iter().zip(&*self.made).any(meets), "no result overlaps an operand");
        span
    }

    /// Bytes of the elements that an op moves as they are; none if it moves numbers in f32.
    pub(super) fn word(&self) -> Option<u64> {
        let is_wide = self.wide.iter().zip(self.operands).any(|(buffer, _)| buffer.is_used) || self.made[0].is_used;
        (!is_wide).then(|| self.results[0].dtype.bytes())
    }

    /// The one result.
    pub(super) fn out(&mut self) -> &mut [f32] {
        match &mut self.made[0] {
            buffer if buffer.is_used => &mut buffer.data,
            // SAFETY: no operand that is read and no other result meets it, and nobody else touches it now.
            _ => unsafe { self.arena.elements_mut(self.results[0]) },
        }
    }

    /// The bytes of the one result with their format, if the kernel writes narrow elements as they are.
    pub(super) fn narrow_out(&self) -> Option<(Narrow, &'a mut [u8])> {
        let format = narrow(self.results[0].dtype).filter(|_| !self.made[0].is_used)?;
        // SAFETY: as in `out`.
        Some((format, unsafe { self.arena.bytes_mut(self.results[0]) }))
    }

    /// The first results, for kernels that write them once; empty slices for those that there are not.
    pub(super) fn outs<const N: usize>(&mut self) -> [&'a mut [f32]; N] {
        self.floats_out().map(FloatsMut::wide)
    }

    /// As [`Call::outs`], in whatever format they are, if the kernel writes narrow elements as they are.
    pub(super) fn floats_out<const N: usize>(&mut self) -> [FloatsMut<'a>; N] {
        let (mut places, mut made) = (self.results.iter(), std::mem::take(&mut self.made).iter_mut());
        std::array::from_fn(|_| match (places.next(), made.next()) {
            (Some(_), Some(buffer)) if buffer.is_used => FloatsMut::Wide(&mut buffer.data),
            (Some(&place), _) => match narrow(place.dtype) {
                // SAFETY: as in `out`.
                Some(format) => FloatsMut::Narrow(format, unsafe { self.arena.bytes_mut(place) }),
                // SAFETY: as in `out`.
                None => FloatsMut::Wide(unsafe { self.arena.elements_mut(place) }),
            },
            (None, _) => FloatsMut::Wide(&mut []),
        })
    }

    /// The elements of a result as they are stored.
    #[allow(clippy::mut_from_ref, reason = "a kernel takes each result once")]
    pub(super) fn stored<T: Stored>(&self, result: usize) -> &'a mut [T] {
        // SAFETY: as in `out`.
        unsafe { self.arena.elements_mut(self.results[result]) }
    }
}
