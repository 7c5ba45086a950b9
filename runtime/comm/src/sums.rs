//! Sums that a wire adds. The members of a process add theirs into the staging memory, block by block; the wire adds those of all
//! processes; each member takes its own. So one sum goes for all ranks of a process, and its order is the wire's.
//!
//! The wire adds f32 alone. Sums of narrow formats are made in f32 and rounded once, and maxima have no order: both stay with the ranks.

use super::crossing::{Crossing, Members, PackedBlock, processes_of};
use super::exchange::{Exchange, Move, TensorPlan};
use super::medium::PeerBuffers;
use device::arena::Arena;
use device::backend::Span;
use device::region::row_major;
use ir::types::{DType, PartialKind};
use kernels::cpu::shape::{View, copy_strided, put_strided};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The adder of the sums of ranks that are in several processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sums {
    /// The ranks, in the order of their group: the bits are those of one process.
    #[default]
    Exact,
    /// The engine that joins the processes, in an order of its own.
    Engine,
}

/// A sum that the wire adds, for one member.
#[derive(Clone, Debug)]
pub(super) struct WireSum {
    /// The members of this process, by place.
    near: Vec<usize>,
    /// The blocks of sources that this member adds, of each near member the same, and their places in the sum.
    adds: Vec<PackedBlock>,
    /// The blocks of the sum that this member takes, and their places in its results.
    takes: Vec<PackedBlock>,
    /// The bytes of the sum, which begin the staging memory.
    pub(super) bytes: usize,
    /// The numbers of the sum that each process gets, one after the other; none if each gets all.
    pub(super) parts: Option<Arc<[usize]>>,
    /// The first other process.
    pub(super) other: usize,
    /// The number of its group among those that the wire joins, once all are known.
    pub(super) group: Arc<OnceLock<u32>>,
}

/// Bytes of an element.
const SIZE: usize = size_of::<f32>();

impl Members<'_> {
    /// The sum that the member at a place makes with the wire; none if the wire does not add the exchange.
    pub(super) fn sum(&self, me: usize) -> Option<WireSum> {
        let mut tensors = self.exchanges.iter().flat_map(|exchange| &exchange.tensors);
        let are_sums = tensors.all(|tensor| is_sum(tensor, self.homes.len()));
        if !are_sums || self.dtypes.iter().any(|dtype| *dtype != DType::F32) {
            return None;
        }
        let near: Vec<usize> = (0..self.homes.len()).filter(|place| self.homes[*place] == self.homes[me]).collect();
        let other = processes_of(self.homes).into_iter().find(|process| *process != self.homes[me])?;
        let empty =
            WireSum { near, adds: Vec::new(), takes: Vec::new(), bytes: 0, parts: None, other, group: Arc::default() };
        let sum = if self.all_get_all() { self.add_whole(me, empty) } else { self.add_parts(me, empty) };
        (sum.bytes > 0).then_some(sum)
    }

    /// True if each member gets the whole sum, and not its part.
    fn all_get_all(&self) -> bool {
        let mut firsts = self.exchanges.iter().map(first_places);
        self.exchanges.iter().any(Exchange::gathers)
            || firsts.next().is_none_or(|first| firsts.all(|other| other == first))
    }

    /// Tensors one after the other, of each of which every near member adds an equal piece.
    fn add_whole(&self, me: usize, mut sum: WireSum) -> WireSum {
        let among = sum.near.iter().position(|place| *place == me).unwrap_or(0);
        for (tensor, plan) in self.exchanges[me].tensors.iter().enumerate() {
            let [start, end] = [among, among + 1].map(|piece| piece * plan.len / sum.near.len());
            sum.adds.push(PackedBlock::run(tensor, sum.bytes, start..end));
            sum.takes.push(PackedBlock::run(tensor, sum.bytes, 0..plan.len));
            sum.bytes += plan.len * SIZE;
        }
        sum
    }

    /// The blocks of all members, those of a process together; near members deal out among each other which they add.
    fn add_parts(&self, me: usize, mut sum: WireSum) -> WireSum {
        let among = sum.near.iter().position(|place| *place == me).unwrap_or(0);
        let (mut parts, mut number) = (Vec::new(), 0);
        for process in processes_of(self.homes) {
            let start = sum.bytes;
            for member in (0..self.homes.len()).filter(|member| self.homes[*member] == process) {
                let tensors = self.exchanges[member].tensors.iter().enumerate();
                for (tensor, block) in tensors.filter_map(|(tensor, plan)| Some((tensor, plan.moves.first()?))) {
                    let (at, sizes) = (sum.bytes, block.sizes.clone());
                    if number % sum.near.len() == among {
                        let (from, strides, sizes) = (block.from, block.from_strides.clone(), sizes.clone());
                        sum.adds.push(PackedBlock { tensor, at, from, strides, sizes });
                    }
                    if member == me {
                        let (from, strides) = (block.to, block.to_strides.clone());
                        sum.takes.push(PackedBlock { tensor, at, from, strides, sizes });
                    }
                    sum.bytes += block.elements() * SIZE;
                    number += 1;
                }
            }
            parts.push((sum.bytes - start) / SIZE);
        }
        WireSum { parts: Some(parts.into()), ..sum }
    }
}

/// The place of the first block of each tensor in its source.
fn first_places(exchange: &Exchange) -> Vec<Option<SourcePlace<'_>>> {
    exchange.tensors.iter().map(|tensor| tensor.moves.first().map(SourcePlace::of)).collect()
}

/// The elements of a source that a block has.
#[derive(PartialEq, Eq)]
struct SourcePlace<'a> {
    from: usize,
    strides: &'a [usize],
    sizes: &'a [usize],
}

impl SourcePlace<'_> {
    fn of(block: &Move) -> SourcePlace<'_> {
        SourcePlace { from: block.from, strides: &block.from_strides, sizes: &block.sizes }
    }
}

/// True if a tensor is a sum of one block of each of a number of members.
fn is_sum(plan: &TensorPlan, members: usize) -> bool {
    let mut places = plan.moves.iter().map(SourcePlace::of);
    let is_alike = places.next().is_none_or(|first| places.all(|place| place == first));
    plan.combine == Some(PartialKind::Sum) && is_alike && [0, members].contains(&plan.moves.len())
}

impl From<WireSum> for Crossing {
    /// A crossing without parcels.
    fn from(sum: WireSum) -> Crossing {
        let (sends, receives, far) = Default::default();
        Crossing { sends, receives, local_sends: 0, far, bytes: [sum.bytes, 0], sum: Some(sum) }
    }
}

impl WireSum {
    /// Adds this member's blocks of the sources of all near members into the staging memory.
    ///
    /// # Safety
    /// Nobody writes the sources, or touches these blocks of the staging memory.
    pub(super) unsafe fn add<'a>(&self, near: impl Fn(usize) -> PeerBuffers<'a, Arena>, staging: &Arena) {
        for block in &self.adds {
            // SAFETY: by the caller's contract.
            let sum = unsafe { staging.elements_mut::<f32>(block.span()) };
            let dense = row_major(&block.sizes);
            let to = View { offset: 0, strides: &dense };
            for (number, &place) in self.near.iter().enumerate() {
                let PeerBuffers { memory, sources, .. } = near(place);
                // SAFETY: by the caller's contract.
                let from = unsafe { memory.elements::<f32>(sources[block.tensor]) };
                match number {
                    0 => copy_strided(from, block.view(), sum, to, &block.sizes),
                    _ => put_strided(from, block.view(), sum, to, &block.sizes, |a, b| *a += b),
                }
            }
        }
    }

    /// Copies this member's blocks of the sum into its results.
    ///
    /// # Safety
    /// The sum is made, and nobody touches the results.
    pub(super) unsafe fn take(&self, staging: &Arena, PeerBuffers { memory, results, .. }: PeerBuffers<'_, Arena>) {
        for block in &self.takes {
            // SAFETY: by the caller's contract.
            let (sum, result) =
                unsafe { (staging.elements::<f32>(block.span()), memory.elements_mut::<f32>(results[block.tensor])) };
            let dense = row_major(&block.sizes);
            copy_strided(sum, View { offset: 0, strides: &dense }, result, block.view(), &block.sizes);
        }
    }
}

impl PackedBlock {
    /// A run of elements of a tensor, whose place in the sum is that of the tensor's first one in bytes.
    fn run(tensor: usize, start: usize, run: Range<usize>) -> PackedBlock {
        let (strides, sizes) = (vec![1], vec![run.len()]);
        PackedBlock { tensor, at: start + run.start * SIZE, from: run.start, strides, sizes }
    }

    /// Its numbers in the sum.
    fn span(&self) -> Span {
        Span::new(DType::F32, self.at, self.elements())
    }

    /// Its place in its tensor.
    fn view(&self) -> View<'_> {
        View { offset: self.from, strides: &self.strides }
    }
}
