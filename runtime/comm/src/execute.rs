//! Execution of an exchange on the host: the data that one rank reads from its peers, and their combination. Sums of narrow formats
//! are made in f32 and rounded once.

use super::ThreadRole;
use super::crossing::{PackedBlock, Parcel};
use super::exchange::{Exchange, FilledRows, Move, TensorPlan};
use super::medium::{Buffer, Buffers, Half, Medium, PeerBuffers};
use device::arena::{Arena, Stored};
use device::backend::Span;
use device::host::narrow;
use device::region::row_major;
use ir::types::{DType, PartialKind};
use kernels::cpu::Par;
use kernels::cpu::narrow::{Narrow, round, widen};
use kernels::cpu::shape::{View, copy_strided, put_strided};
use std::cell::RefCell;
use std::ops::AddAssign;

/// The memory of this process, through which data moves at once.
#[derive(Default)]
pub struct HostMemory {
    scratch: RefCell<Scratch>,
}

impl Medium for HostMemory {
    type Memory = Arena;
    type Event = ();
    type Stream = ();

    fn fork(&self) -> HostMemory {
        HostMemory::default()
    }

    fn event(&self) -> Result<(), String> {
        Ok(())
    }

    fn stream(&self) -> Result<(), String> {
        Ok(())
    }

    fn stream_of(&self, _: ThreadRole) {}

    fn record(&self, _: &(), _: &()) {}

    fn wait(&self, _: &(), _: &()) {}

    fn host(memory: &Arena) -> Option<&Arena> {
        Some(memory)
    }

    fn staging(&self, bytes: usize) -> Result<Arena, String> {
        Arena::new(bytes)
    }

    unsafe fn exchange<'a>(
        &self,
        _: &(),
        plan: &Exchange,
        half: Half,
        me: usize,
        peer: impl Fn(usize) -> PeerBuffers<'a, Arena>,
    ) -> Option<u64> {
        // SAFETY: by the caller's contract.
        unsafe {
            match half {
                Half::Pull => return plan.pull(me, peer, &mut self.scratch.borrow_mut()),
                Half::Gather => plan.gather(me, peer),
            }
        }
        None
    }

    unsafe fn copy(&self, _: &(), to: Buffer<'_, Arena>, from: Buffer<'_, Arena>) {
        // SAFETY: by the caller's contract.
        unsafe { to.memory.bytes_mut(to.span).copy_from_slice(from.memory.bytes(from.span)) }
    }
}

/// Memory for combinations; it grows as needed.
#[derive(Default)]
struct Scratch {
    /// Numbers that are combined so far.
    sum: Vec<f32>,
    /// A block of a peer's tensor, dense: as it is stored, and in f32.
    block: Vec<u8>,
    wide: Vec<f32>,
}

/// Elements of a sum in place that are made at a time: 16 KiB, half of a first-level cache.
const CHUNK: usize = 1 << 12;

impl Exchange {
    /// Makes the results of the member `me` from the sources of all. Returns the bytes of filled rows that came, if only such move.
    ///
    /// # Safety
    /// Nobody writes a source or touches one's own results, except, where the plan is for that, the peers their own pieces
    /// in place.
    unsafe fn pull<'a>(
        &self,
        me: usize,
        peer: impl Fn(usize) -> PeerBuffers<'a, Arena>,
        scratch: &mut Scratch,
    ) -> Option<u64> {
        let mut bytes = None;
        for (index, plan) in self.tensors.iter().enumerate() {
            let own = peer(me);
            // SAFETY: by the caller's contract.
            unsafe {
                match &plan.filled {
                    Some(filled) => {
                        let counts = own.source(filled.counts[1]);
                        let copied =
                            plan.copy_filled(filled, counts, |place| peer(place).source(index), own.result(index));
                        *bytes.get_or_insert(0) += copied;
                    }
                    None => plan.pull(|place| peer(place).source(index), own.result(index), scratch),
                }
            }
        }
        bytes
    }

    /// Takes over the pieces of sums that the peers have made.
    ///
    /// # Safety
    /// All peers have made theirs, and nobody touches the pieces of others in one's own results.
    unsafe fn gather<'a>(&self, me: usize, peer: impl Fn(usize) -> PeerBuffers<'a, Arena>) {
        for (index, plan) in self.tensors.iter().enumerate() {
            for piece in &plan.gather {
                let (theirs, own) = (peer(piece.peer), peer(me));
                let len = piece.sizes[0];
                // SAFETY: by the caller's contract; the slices are of different arenas.
                unsafe {
                    let reduced = theirs.memory.bytes(theirs.results[index].part(piece.from, len));
                    own.memory.bytes_mut(own.results[index].part(piece.to, len)).copy_from_slice(reduced);
                }
            }
        }
    }
}

impl TensorPlan {
    /// Makes a result whose chunks are filled from the sources of all.
    ///
    /// # Safety
    /// As for [`Exchange::pull`].
    unsafe fn pull<'a>(
        &self,
        source: impl Fn(usize) -> Buffer<'a, Arena>,
        result: Buffer<'a, Arena>,
        scratch: &mut Scratch,
    ) {
        let dtype = result.span.dtype;
        // SAFETY: by the caller's contract.
        unsafe {
            match (self.combine, narrow(dtype)) {
                (None, _) => self.copy(source, result),
                (Some(kind), Some(format)) => self.combine_narrow(kind, format, source, result, scratch),
                (Some(kind), None) if self.in_place => self.reduce_in_place(kind, source, result, scratch),
                (Some(kind), None) if dtype == DType::I32 => self.reduce::<i32>(kind, source, result),
                (Some(kind), None) => self.reduce::<f32>(kind, source, result),
            }
        }
    }

    /// Copies blocks, whatever their type.
    ///
    /// # Safety
    /// Nobody writes a source or touches the result, and no source overlaps the result. A copy in place (a broadcast) has no
    /// move at the rank that others read.
    unsafe fn copy<'a>(&self, source: impl Fn(usize) -> Buffer<'a, Arena>, result: Buffer<'a, Arena>) {
        // SAFETY: by the caller's contract.
        unsafe {
            match result.span.dtype.bytes() {
                4 => self.copy_words::<u32>(source, result),
                2 => self.copy_words::<u16>(source, result),
                _ => self.copy_words::<u8>(source, result),
            }
        }
    }

    /// # Safety
    /// As for [`TensorPlan::copy`].
    unsafe fn copy_words<'a, T: Stored + Default>(
        &self,
        source: impl Fn(usize) -> Buffer<'a, Arena>,
        result: Buffer<'a, Arena>,
    ) {
        // SAFETY: by the caller's contract.
        let result = unsafe { result.memory.elements_mut::<T>(result.span) };
        if self.zero {
            result.fill(T::default());
        }
        for block in &self.moves {
            let Buffer { memory, span } = source(block.peer);
            // SAFETY: by the caller's contract.
            let from = unsafe { memory.elements::<T>(span) };
            copy_strided(from, block.from(), result, block.to(), &block.sizes);
        }
    }

    /// Copies the filled rows of chunks, and makes the others zeros. Returns the bytes that it has copied.
    ///
    /// # Safety
    /// As for [`TensorPlan::copy`]; nobody writes the counts.
    unsafe fn copy_filled<'a>(
        &self,
        filled: &FilledRows,
        counts: Buffer<'a, Arena>,
        source: impl Fn(usize) -> Buffer<'a, Arena>,
        result: Buffer<'a, Arena>,
    ) -> u64 {
        let size = result.span.dtype.bytes() as usize;
        // SAFETY: by the caller's contract.
        let (counts, result) =
            unsafe { (counts.memory.elements::<i32>(counts.span), result.memory.bytes_mut(result.span)) };
        let (chunk, mut copied) = (filled.chunk(), 0);
        for block in &self.moves {
            let Buffer { memory, span } = source(block.peer);
            // SAFETY: by the caller's contract.
            let from = unsafe { memory.bytes(span) };
            let mut packed = block.from;
            for [source, target] in block.chunks() {
                let elements = filled.filled(counts[target / chunk]) * filled.width;
                let source = if block.packed { packed } else { source };
                packed += elements;
                let bytes = elements * size;
                let (head, rest) = result[target * size..][..chunk * size].split_at_mut(bytes);
                head.copy_from_slice(&from[source * size..][..bytes]);
                rest.fill(0);
                copied += bytes as u64;
            }
        }
        copied
    }

    /// Combines blocks.
    ///
    /// # Safety
    /// Nobody writes a source or touches the result, and no source overlaps the result.
    unsafe fn reduce<'a, T: Stored + PartialOrd + AddAssign>(
        &self,
        kind: PartialKind,
        source: impl Fn(usize) -> Buffer<'a, Arena>,
        result: Buffer<'a, Arena>,
    ) {
        // SAFETY: by the caller's contract.
        let result = unsafe { result.memory.elements_mut::<T>(result.span) };
        for (place, block) in self.moves.iter().enumerate() {
            let Buffer { memory, span } = source(block.peer);
            // SAFETY: by the caller's contract.
            let (from, source) = (unsafe { memory.elements::<T>(span) }, block.from());
            match (place, kind) {
                (0, _) => copy_strided(from, source, result, block.to(), &block.sizes),
                (_, PartialKind::Sum) => put_strided(from, source, result, block.to(), &block.sizes, |a, b| *a += b),
                (_, PartialKind::Max) => {
                    put_strided(from, source, result, block.to(), &block.sizes, |a, b| {
                        *a = if b > *a { b } else { *a }
                    });
                }
            }
        }
    }

    /// Combines narrow blocks, chunk by chunk where they are contiguous, and rounds what came of it.
    ///
    /// # Safety
    /// Nobody writes a source. Nobody touches the result, but in place the peers may read or write what this rank does not make.
    unsafe fn combine_narrow<'a>(
        &self,
        kind: PartialKind,
        format: Narrow,
        source: impl Fn(usize) -> Buffer<'a, Arena>,
        result: Buffer<'a, Arena>,
        scratch: &mut Scratch,
    ) {
        let Some(first) = self.moves.first() else { return };
        let (len, is_run) = (first.sizes.iter().product(), first.sizes.len() == 1);
        for at in (0..len).step_by(if is_run { CHUNK } else { len }) {
            let count = if is_run { CHUNK.min(len - at) } else { len };
            for (place, block) in self.moves.iter().enumerate() {
                let source = source(block.peer);
                scratch.wide.resize(count, 0.0);
                // SAFETY: by the caller's contract; what is read of a source in place is written below.
                unsafe {
                    match is_run {
                        true => {
                            let piece = source.memory.bytes(source.span.part(block.from + at, count));
                            widen(format, piece, &mut scratch.wide, Par(1));
                        }
                        false => block.widen(format, source, scratch),
                    }
                }
                match place {
                    0 => scratch.sum.clone_from(&scratch.wide),
                    _ => combine(kind, &mut scratch.sum, &scratch.wide),
                }
            }
            // SAFETY: by the caller's contract, and no slice of the sources lives.
            let piece = unsafe { result.memory.bytes_mut(result.span.part(first.to + at, count)) };
            round(format, &scratch.sum, piece, Par(1));
        }
    }

    /// A reduction in place, chunk by chunk. Every rank writes only its own piece, and of
    /// the others' only the same piece is read.
    ///
    /// # Safety
    /// Nobody else reads or writes the piece in the result, and nobody writes it in the sources.
    unsafe fn reduce_in_place<'a>(
        &self,
        kind: PartialKind,
        source: impl Fn(usize) -> Buffer<'a, Arena>,
        result: Buffer<'a, Arena>,
        scratch: &mut Scratch,
    ) {
        let Some(piece) = self.moves.first() else { return };
        let (to, count) = (piece.to, piece.sizes[0]);
        for at in (0..count).step_by(CHUNK) {
            let len = CHUNK.min(count - at);
            let sum = &mut scratch.sum;
            sum.clear();
            for block in &self.moves {
                let Buffer { memory, span } = source(block.peer);
                // SAFETY: by the caller's contract; the own piece is written below.
                let theirs = unsafe { memory.elements(span.part(block.from + at, len)) };
                match sum.is_empty() {
                    true => sum.extend_from_slice(theirs),
                    false => combine(kind, sum, theirs),
                }
            }
            // SAFETY: by the caller's contract, and no slice of the sources lives.
            unsafe { result.memory.elements_mut(result.span.part(to + at, len)) }.copy_from_slice(sum);
        }
    }
}

/// Packs a parcel of a member's tensors into staging memory, into the area that begins at a byte. Returns its bytes.
///
/// # Safety
/// Nobody writes the tensors, or touches the place of the parcel.
pub(super) unsafe fn pack(
    plan: &Exchange,
    parcel: &Parcel,
    tensors: Buffers<'_, Arena>,
    staging: &Arena,
    area: usize,
) -> usize {
    let mut packed = 0;
    for block in &parcel.blocks {
        let (tensor, filled) = (tensors.tensor(block.tensor), &plan.tensors[block.tensor].filled);
        let dtype = tensor.span.dtype;
        let place = if parcel.filled { packed } else { block.at };
        let span = Span::new(dtype, area + parcel.offset + place, block.elements());
        let to = Buffer { memory: staging, span };
        // SAFETY: by the caller's contract.
        packed = place
            + unsafe {
                match (filled, dtype.bytes()) {
                    (Some(filled), _) => block.pack_filled(filled, tensors, to),
                    (None, 4) => block.pack::<u32>(tensor, to),
                    (None, 2) => block.pack::<u16>(tensor, to),
                    (None, _) => block.pack::<u8>(tensor, to),
                }
            };
    }
    packed
}

impl PackedBlock {
    /// Copies the block, and returns its bytes.
    ///
    /// # Safety
    /// As for [`pack`].
    unsafe fn pack<T: Stored>(&self, tensor: Buffer<'_, Arena>, to: Buffer<'_, Arena>) -> usize {
        // SAFETY: by the caller's contract.
        let (from, into) = unsafe { (tensor.memory.elements::<T>(tensor.span), to.memory.elements_mut::<T>(to.span)) };
        let source = View { offset: self.from, strides: &self.strides };
        copy_strided(from, source, into, View { offset: 0, strides: &row_major(&self.sizes) }, &self.sizes);
        to.span.bytes()
    }

    /// Copies the filled rows of the block's chunks, one after the other, and returns their bytes.
    ///
    /// # Safety
    /// As for [`pack`].
    unsafe fn pack_filled(&self, filled: &FilledRows, tensors: Buffers<'_, Arena>, to: Buffer<'_, Arena>) -> usize {
        let Buffers { memory, spans } = tensors;
        let size = to.span.dtype.bytes() as usize;
        // SAFETY: by the caller's contract.
        let (counts, from, into) = unsafe {
            let counts = memory.elements::<i32>(spans[filled.counts[0]]);
            (counts, memory.bytes(spans[self.tensor]), to.memory.bytes_mut(to.span))
        };
        let (chunk, mut packed) = (filled.chunk(), 0);
        for start in starts(&self.sizes, self.from, &self.strides) {
            let bytes = filled.filled(counts[start / chunk]) * filled.width * size;
            into[packed..][..bytes].copy_from_slice(&from[start * size..][..bytes]);
            packed += bytes;
        }
        packed
    }
}

/// The starts of the runs of a block along its last dim, in elements of a tensor.
fn starts(sizes: &[usize], first: usize, strides: &[usize]) -> impl Iterator<Item = usize> {
    let outer = &sizes[..sizes.len() - 1];
    (0..outer.iter().product()).map(move |mut number: usize| {
        let mut at = first;
        for (size, stride) in outer.iter().zip(strides).rev() {
            at += number % size * stride;
            number /= size;
        }
        at
    })
}

/// Adds numbers, or takes the larger ones.
fn combine(kind: PartialKind, into: &mut [f32], from: &[f32]) {
    match kind {
        PartialKind::Sum => into.iter_mut().zip(from).for_each(|(a, &b)| *a += b),
        PartialKind::Max => into.iter_mut().zip(from).for_each(|(a, &b)| *a = a.max(b)),
    }
}

impl Move {
    /// The starts of the runs along the last dim, in elements of the peer's tensor and of the own one.
    pub(super) fn chunks(&self) -> impl Iterator<Item = [usize; 2]> {
        let to = starts(&self.sizes, self.to, &self.to_strides);
        starts(&self.sizes, self.from, &self.from_strides).zip(to).map(<[usize; 2]>::from)
    }

    fn from(&self) -> View<'_> {
        View { offset: self.from, strides: &self.from_strides }
    }

    fn to(&self) -> View<'_> {
        View { offset: self.to, strides: &self.to_strides }
    }

    /// Widens the block into dense scratch memory. Blocks that are combined cover a contiguous part of the result: its
    /// strides are those of the block.
    ///
    /// # Safety
    /// Nobody writes the source.
    unsafe fn widen(&self, format: Narrow, source: Buffer<'_, Arena>, scratch: &mut Scratch) {
        let (Scratch { block, wide, .. }, Buffer { memory, span }) = (scratch, source);
        block.resize(wide.len() * format.bytes(), 0);
        let to = View { offset: 0, strides: &self.to_strides };
        match format.bytes() {
            // SAFETY: by the caller's contract.
            1 => copy_strided(unsafe { memory.elements(span) }, self.from(), block, to, &self.sizes),
            _ => {
                let (pairs, _) = block.as_chunks_mut::<2>();
                // SAFETY: as above; pairs of bytes are elements of two bytes.
                let (from, _) = unsafe { memory.bytes(span) }.as_chunks::<2>();
                copy_strided(from, self.from(), pairs, to, &self.sizes);
            }
        }
        widen(format, block, wide, Par(1));
    }
}
