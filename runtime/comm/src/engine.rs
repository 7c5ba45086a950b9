//! An exchange as calls of a collective engine, which knows dense buffers alone: sums, gathers, broadcasts, sends and receives.
//!
//! All of it is a pure function of the members' exchanges, so all members make the same calls. Blocks that no call takes as they are go
//! through staging memory: each member packs its own, the engine moves them, and each unpacks what has come. Tensors of an exchange that
//! move alike share a call. Where members have parts of several sizes, each has the room of the largest.

use super::ExchangePlan;
use super::engine_rows::RowsExchange;
use super::exchange::{Exchange, Move, TensorPlan, contiguous};
use device::region::row_major;
use ir::types::{DType, PartialKind};

/// Alignment of blocks in staging memory: that of the widest run of a kernel.
const ALIGNED: usize = 16;

/// Start of a buffer that a call reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallPlace {
    /// An element of a tensor that the rank gives.
    Source(usize, usize),
    /// An element of a tensor that the rank makes.
    Result(usize, usize),
    /// A byte of the staging memory.
    Staging(usize),
}

/// A call of the engine, with the places of its buffers: in an exchange, or once they are known their addresses. Numbers of members are
/// their places in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each call says what its buffers and lengths are")]
pub enum EngineCall<P = CallPlace> {
    /// The sum or maximum of `len` elements, for all members.
    AllReduce { from: P, to: P, len: usize, dtype: DType, kind: PartialKind },
    /// The sum or maximum of `len` elements for each member, one after the other; each gets its own.
    ReduceScatter { from: P, to: P, len: usize, dtype: DType, kind: PartialKind },
    /// The bytes of all members, one after the other, for all.
    AllGather { from: P, to: P, bytes: usize },
    /// The bytes of one member, for all.
    Broadcast { root: usize, from: P, to: P, bytes: usize },
    /// Bytes to a member.
    Send { to: usize, from: P, bytes: usize },
    /// Bytes from a member.
    Receive { from: usize, to: P, bytes: usize },
}

impl EngineCall {
    /// The call with the addresses of its places.
    pub fn addressed(self, at: impl Fn(CallPlace) -> u64) -> EngineCall<u64> {
        match self {
            EngineCall::AllReduce { from, to, len, dtype, kind } => {
                EngineCall::AllReduce { from: at(from), to: at(to), len, dtype, kind }
            }
            EngineCall::ReduceScatter { from, to, len, dtype, kind } => {
                EngineCall::ReduceScatter { from: at(from), to: at(to), len, dtype, kind }
            }
            EngineCall::AllGather { from, to, bytes } => EngineCall::AllGather { from: at(from), to: at(to), bytes },
            EngineCall::Broadcast { root, from, to, bytes } => {
                EngineCall::Broadcast { root, from: at(from), to: at(to), bytes }
            }
            EngineCall::Send { to, from, bytes } => EngineCall::Send { to, from: at(from), bytes },
            EngineCall::Receive { from, to, bytes } => EngineCall::Receive { from, to: at(to), bytes },
        }
    }
}

/// A block that is copied between a tensor and the staging memory, where it is dense from a byte on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagedBlock {
    /// The tensor.
    pub tensor: usize,
    /// The start in the staging memory.
    pub at: usize,
    /// The block; what it begins with in the staging memory is element 0.
    pub block: Move,
}

/// An exchange as one member makes it with an engine.
#[derive(Clone, Default, Debug)]
pub struct EngineExchange {
    /// The members, in the order of their group.
    pub ranks: Vec<usize>,
    /// The filled rows that move, of chunks that are not filled; then there is nothing else.
    pub rows: Option<RowsExchange>,
    /// Blocks of the rank's own sources that go into its results.
    pub own: Vec<(usize, Move)>,
    /// Blocks of sources that are packed first.
    pub packs: Vec<StagedBlock>,
    /// Calls, in one order on all members.
    pub calls: Vec<EngineCall>,
    /// Blocks of results that are unpacked last.
    pub unpacks: Vec<StagedBlock>,
    /// Bytes of staging memory.
    pub bytes: usize,
    /// The exchange itself, if the rank is the only member; then there are no calls.
    pub alone: Option<Exchange>,
    /// The number of its name.
    pub op: u32,
}

impl ExchangePlan for EngineExchange {
    fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}

/// How a tensor moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Form {
    /// All members get the same.
    AllReduce,
    /// Each member gets its block.
    ReduceScatter,
    /// All members take the same of each.
    AllGather,
    /// All members take the same of one.
    Broadcast(usize),
    /// Else.
    Messages,
}

/// Blocks of a tensor that the members pull.
#[derive(Default)]
struct Pulls {
    form: Option<Form>,
    /// The own plan.
    own: TensorPlan,
    /// By member, the first block that it pulls, and the number of all.
    firsts: Vec<(Option<Move>, usize)>,
    /// By member, the blocks that it pulls of this one.
    of_me: Vec<Vec<Move>>,
    /// By peer, the blocks that the first member pulls of it.
    of_each: Vec<Vec<Move>>,
    /// True if all members pull the same of each peer.
    is_alike: bool,
    /// True if pieces of a sum are gathered.
    gathers: bool,
}

impl EngineExchange {
    /// The exchange of the member at a place. `of` gives that of each member by its place; `dtypes` are the elements of each tensor.
    ///
    /// # Errors
    /// As of `of`; or a sum is of numbers that engines do not add.
    pub fn of(
        me: usize,
        ranks: &[usize],
        dtypes: &[DType],
        of: &mut dyn FnMut(usize) -> Result<Exchange, String>,
    ) -> Result<EngineExchange, String> {
        if ranks.len() == 1 {
            return Ok(EngineExchange { ranks: ranks.to_vec(), alone: Some(of(me)?), ..EngineExchange::default() });
        }
        let mut all: Vec<Pulls> = dtypes.iter().map(|_| Pulls { is_alike: true, ..Pulls::default() }).collect();
        for member in 0..ranks.len() {
            let tensors = of(member)?.tensors;
            all.iter_mut().zip(tensors).for_each(|(pulls, plan)| pulls.note(member, me, ranks.len(), plan));
        }
        let plan = EngineExchange { ranks: ranks.to_vec(), ..EngineExchange::default() };
        let mut rows = all.iter().zip(dtypes).filter_map(|(pulls, &dtype)| Some((pulls.own.filled?, dtype))).peekable();
        if rows.peek().is_some() {
            let rows = rows_exchange(me, &all, RowsExchange::of(rows));
            return Ok(EngineExchange { bytes: rows.bytes, rows: Some(rows), ..plan });
        }
        let mut builder = Builder { me, all: &all, dtypes, plan };
        // Tensors that move alike, in the order of the first of each.
        let mut classes: Vec<(Class, Vec<usize>)> = Vec::new();
        for (tensor, (pulls, &dtype)) in all.iter().zip(dtypes).enumerate() {
            let class = Class { form: pulls.form(), sum: pulls.own.combine.map(|kind| (dtype, kind)) };
            if let Some((DType::F8E4M3 | DType::F8E5M2, _)) = class.sum {
                return Err(format!("no engine adds numbers of {}", dtype.name()));
            }
            match classes.iter_mut().find(|(other, _)| *other == class) {
                Some((_, tensors)) => tensors.push(tensor),
                None => classes.push((class, vec![tensor])),
            }
        }
        for (class, tensors) in classes {
            match (class.form, class.sum) {
                (Form::AllReduce, Some((dtype, kind))) => builder.all_reduce(&tensors, dtype, kind),
                (Form::ReduceScatter, Some((dtype, kind))) => builder.reduce_scatter(&tensors, dtype, kind),
                (Form::AllGather, _) => builder.all_gather(&tensors),
                (Form::Broadcast(root), _) => builder.broadcast(&tensors, root),
                _ => builder.messages(&tensors),
            }
        }
        Ok(builder.plan)
    }
}

/// How tensors that share a call move, and what they are if the call adds them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Class {
    form: Form,
    sum: Option<(DType, PartialKind)>,
}

impl Pulls {
    /// Notes the plan of a member of several, one member after the other.
    fn note(&mut self, member: usize, me: usize, members: usize, plan: TensorPlan) {
        self.firsts.push((plan.moves.first().cloned(), plan.moves.len()));
        self.gathers |= !plan.gather.is_empty();
        let mut of_each = vec![Vec::new(); members];
        plan.moves.iter().for_each(|block| of_each[block.peer].push(block.clone()));
        self.of_me.push(of_each[me].clone());
        if member == 0 {
            self.of_each = of_each;
        } else {
            self.is_alike &= self.of_each.iter().zip(&of_each).all(|(first, other)| are_same(other, first));
        }
        if member == me {
            self.own = plan;
        }
        let is_last = self.firsts.len() == members;
        self.form = is_last.then(|| self.find_form());
    }

    fn form(&self) -> Form {
        self.form.unwrap_or(Form::Messages)
    }

    fn find_form(&self) -> Form {
        if self.own.combine.is_some() {
            let mut firsts = self.firsts.iter().map(|(first, _)| first.as_slice());
            let is_whole = self.gathers || firsts.all(|first| are_same(first, self.firsts[0].0.as_slice()));
            return if is_whole { Form::AllReduce } else { Form::ReduceScatter };
        }
        match self.broadcast_root() {
            Some(root) => Form::Broadcast(root),
            None if self.is_alike => Form::AllGather,
            None => Form::Messages,
        }
    }

    /// The member of which all others pull one block, the same and whole, while it pulls none itself.
    fn broadcast_root(&self) -> Option<usize> {
        let root = self.firsts.iter().position(|(_, blocks)| *blocks == 0)?;
        let block = self.firsts.iter().find(|(_, blocks)| *blocks > 0)?.0.as_ref()?;
        let mut members = self.firsts.iter().enumerate();
        let is_whole = [block.from, block.to] == [0, 0] && is_dense_on_both(block);
        let is_common = members.all(|(member, (first, blocks))| {
            member == root
                || *blocks == 1 && first.as_ref().is_some_and(|first| first.peer == root && is_same(first, block))
        });
        (is_whole && is_common).then_some(root)
    }
}

/// True if both take the same blocks of a peer.
fn are_same(a: &[Move], b: &[Move]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
}

fn is_same(a: &Move, b: &Move) -> bool {
    (a.from, &a.from_strides, &a.sizes) == (b.from, &b.from_strides, &b.sizes)
}

/// True if a block lies together, in its order, in the source and in the result.
fn is_dense_on_both(block: &Move) -> bool {
    [&block.from_strides, &block.to_strides].iter().all(|strides| is_dense(strides, &block.sizes))
}

/// True if a block with these strides lies together, in its order.
fn is_dense(strides: &[usize], sizes: &[usize]) -> bool {
    let mut expected = 1;
    strides.iter().zip(sizes).rev().all(|(&stride, &size)| {
        let fits = size == 1 || stride == expected;
        expected *= size;
        fits
    })
}

/// A half of a message, as a member makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Send,
    Receive,
}

/// Adds the blocks of tensors of rows, as the member at a place moves them.
fn rows_exchange(me: usize, all: &[Pulls], mut rows: RowsExchange) -> RowsExchange {
    let tensors: Vec<usize> = (0..all.len()).collect();
    rows.keep(taken(all, &tensors, me));
    for peer in (0..all[0].firsts.len()).filter(|peer| *peer != me) {
        rows.add(Half::Send, peer, given(all, &tensors, peer));
        rows.add(Half::Receive, peer, taken(all, &tensors, peer));
    }
    rows
}

/// The blocks of some tensors that a member pulls of this one, each with its tensor.
fn given<'a>(all: &'a [Pulls], tensors: &'a [usize], member: usize) -> impl Iterator<Item = (usize, &'a Move)> {
    tensors.iter().flat_map(move |&tensor| all[tensor].of_me[member].iter().map(move |block| (tensor, block)))
}

/// The blocks of some tensors that this member pulls of another one, with the places in its own results.
fn taken<'a>(all: &'a [Pulls], tensors: &'a [usize], member: usize) -> impl Iterator<Item = (usize, &'a Move)> {
    let blocks = tensors.iter().flat_map(|&tensor| all[tensor].own.moves.iter().map(move |block| (tensor, block)));
    blocks.filter(move |(_, block)| block.peer == member)
}

/// The blocks of some tensors that all members pull of one.
fn gathered<'a>(all: &'a [Pulls], tensors: &'a [usize], member: usize) -> impl Iterator<Item = (usize, &'a Move)> {
    tensors.iter().flat_map(move |&tensor| all[tensor].of_each[member].iter().map(move |block| (tensor, block)))
}

/// The first blocks of some tensors that a member pulls: in a scatter its parts.
fn scattered<'a>(all: &'a [Pulls], tensors: &'a [usize], member: usize) -> impl Iterator<Item = (usize, &'a Move)> {
    tensors.iter().filter_map(move |&tensor| Some((tensor, all[tensor].firsts[member].0.as_ref()?)))
}

/// The place of a block of a message, if the block lies together there.
fn dense_place(half: Half, tensor: usize, block: &Move) -> Option<CallPlace> {
    let (strides, place) = match half {
        Half::Send => (&block.from_strides, CallPlace::Source(tensor, block.from)),
        Half::Receive => (&block.to_strides, CallPlace::Result(tensor, block.to)),
    };
    is_dense(strides, &block.sizes).then_some(place)
}

/// Builder of one member's exchange.
struct Builder<'a> {
    me: usize,
    all: &'a [Pulls],
    dtypes: &'a [DType],
    plan: EngineExchange,
}

impl Builder<'_> {
    fn bytes(&self, tensor: usize, elements: usize) -> usize {
        elements * self.dtypes[tensor].bytes() as usize
    }

    /// Takes bytes of the staging memory.
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.plan.bytes;
        self.plan.bytes = (at + bytes).next_multiple_of(ALIGNED);
        at
    }

    fn pack(&mut self, tensor: usize, block: &Move, at: usize) {
        let block = Move { to: 0, to_strides: row_major(&block.sizes), ..block.clone() };
        self.plan.packs.push(StagedBlock { tensor, at, block });
    }

    fn unpack(&mut self, tensor: usize, block: &Move, at: usize) {
        let block = Move { from: 0, from_strides: row_major(&block.sizes), ..block.clone() };
        self.plan.unpacks.push(StagedBlock { tensor, at, block });
    }

    /// The places of blocks one after the other, from the start of a parcel on, and the bytes of all.
    fn lay_out<'b>(&self, blocks: impl Iterator<Item = (usize, &'b Move)>) -> (Vec<usize>, usize) {
        let (mut places, mut end) = (Vec::new(), 0);
        for (tensor, block) in blocks {
            places.push(end);
            end = (end + self.bytes(tensor, block.elements())).next_multiple_of(ALIGNED);
        }
        (places, end)
    }

    fn all_reduce(&mut self, tensors: &[usize], dtype: DType, kind: PartialKind) {
        let all = self.all;
        if let &[tensor] = tensors {
            let (from, to, len) = (CallPlace::Source(tensor, 0), CallPlace::Result(tensor, 0), all[tensor].own.len);
            if len > 0 {
                self.plan.calls.push(EngineCall::AllReduce { from, to, len, dtype, kind });
            }
            return;
        }
        let blocks = tensors.iter().map(|&tensor| (tensor, contiguous(0, 0, all[tensor].own.len)));
        let blocks: Vec<(usize, Move)> = blocks.collect();
        let (places, bytes) = self.lay_out(blocks.iter().map(|(tensor, block)| (*tensor, block)));
        let start = self.take(bytes);
        for ((tensor, block), place) in blocks.iter().zip(places) {
            self.pack(*tensor, block, start + place);
            self.unpack(*tensor, block, start + place);
        }
        let (from, len) = (CallPlace::Staging(start), bytes / dtype.bytes() as usize);
        if len > 0 {
            self.plan.calls.push(EngineCall::AllReduce { from, to: from, len, dtype, kind });
        }
    }

    fn reduce_scatter(&mut self, tensors: &[usize], dtype: DType, kind: PartialKind) {
        let (me, all, members) = (self.me, self.all, self.plan.ranks.len());
        let laid = (0..members).map(|member| self.lay_out(scattered(all, tensors, member)));
        let laid: Vec<(Vec<usize>, usize)> = laid.collect();
        let chunk = laid.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        if chunk == 0 {
            return;
        }
        let size = dtype.bytes() as usize;
        if let Some((tensor, len)) = self.scatters_in_order(tensors) {
            let (from, to) = (CallPlace::Source(tensor, 0), CallPlace::Result(tensor, 0));
            self.plan.calls.push(EngineCall::ReduceScatter { from, to, len, dtype, kind });
            return;
        }
        let [send, receive] = [self.take(members * chunk), self.take(chunk)];
        for (member, (places, _)) in laid.iter().enumerate() {
            for ((tensor, block), place) in scattered(all, tensors, member).zip(places) {
                self.pack(tensor, block, send + member * chunk + place);
            }
        }
        for ((tensor, block), place) in scattered(all, tensors, me).zip(&laid[me].0) {
            self.unpack(tensor, block, receive + place);
        }
        let (from, to) = (CallPlace::Staging(send), CallPlace::Staging(receive));
        self.plan.calls.push(EngineCall::ReduceScatter { from, to, len: chunk / size, dtype, kind });
    }

    /// The one tensor of a scatter and the elements of a member's block, if all blocks are dense, equally long and in order.
    fn scatters_in_order(&self, tensors: &[usize]) -> Option<(usize, usize)> {
        let &[tensor] = tensors else { return None };
        let firsts = &self.all[tensor].firsts;
        let len = firsts[0].0.as_ref()?.elements();
        let is_ordered = firsts.iter().enumerate().all(|(member, (block, _))| {
            block
                .as_ref()
                .is_some_and(|block| (block.from, block.elements()) == (member * len, len) && is_dense_on_both(block))
        });
        is_ordered.then_some((tensor, len))
    }

    fn all_gather(&mut self, tensors: &[usize]) {
        let (me, all, members) = (self.me, self.all, self.plan.ranks.len());
        let laid = (0..members).map(|member| self.lay_out(gathered(all, tensors, member)));
        let laid: Vec<(Vec<usize>, usize)> = laid.collect();
        let chunk = laid.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        if chunk == 0 {
            return;
        }
        if let Some((tensor, bytes)) = self.gathers_in_order(tensors) {
            let (_, own) = gathered(all, tensors, me).next().unwrap_or((tensor, &all[tensor].own.moves[0]));
            let (from, to) = (CallPlace::Source(tensor, own.from), CallPlace::Result(tensor, 0));
            self.plan.calls.push(EngineCall::AllGather { from, to, bytes });
            return;
        }
        let [send, receive] = [self.take(chunk), self.take(members * chunk)];
        for ((tensor, block), place) in gathered(all, tensors, me).zip(&laid[me].0) {
            self.pack(tensor, block, send + place);
        }
        for (member, (places, _)) in laid.iter().enumerate() {
            for ((tensor, block), place) in taken(all, tensors, member).zip(places) {
                self.unpack(tensor, block, receive + member * chunk + place);
            }
        }
        let (from, to) = (CallPlace::Staging(send), CallPlace::Staging(receive));
        self.plan.calls.push(EngineCall::AllGather { from, to, bytes: chunk });
    }

    /// The one tensor of a gather and the bytes of a member's part, if all parts are dense, equally long, and the result has them in order.
    fn gathers_in_order(&self, tensors: &[usize]) -> Option<(usize, usize)> {
        let &[tensor] = tensors else { return None };
        let moves = &self.all[tensor].own.moves;
        let len = moves.first()?.elements();
        let is_ordered = moves.iter().enumerate().all(|(member, block)| {
            (block.peer, block.to, block.elements()) == (member, member * len, len) && is_dense_on_both(block)
        });
        (is_ordered && moves.len() == self.plan.ranks.len()).then(|| (tensor, self.bytes(tensor, len)))
    }

    fn broadcast(&mut self, tensors: &[usize], root: usize) {
        for &tensor in tensors {
            let (from, to) = (CallPlace::Source(tensor, 0), CallPlace::Result(tensor, 0));
            let bytes = self.bytes(tensor, self.all[tensor].own.len);
            if bytes > 0 {
                self.plan.calls.push(EngineCall::Broadcast { root, from, to, bytes });
            }
        }
    }

    fn messages(&mut self, tensors: &[usize]) {
        let (me, all, members) = (self.me, self.all, self.plan.ranks.len());
        self.plan.own.extend(taken(all, tensors, me).map(|(tensor, block)| (tensor, block.clone())));
        for peer in (0..members).filter(|peer| *peer != me) {
            self.message(Half::Send, peer, &given(all, tensors, peer).collect::<Vec<_>>());
            self.message(Half::Receive, peer, &taken(all, tensors, peer).collect::<Vec<_>>());
        }
    }

    /// A half of a message: its only block as it lies, if that is dense, or all blocks through staging memory.
    fn message(&mut self, half: Half, peer: usize, blocks: &[(usize, &Move)]) {
        let (places, padded) = self.lay_out(blocks.iter().copied());
        // A single block has no padding: the other end may take it as it lies.
        let (only, bytes) = match blocks {
            &[(tensor, block)] => (dense_place(half, tensor, block), self.bytes(tensor, block.elements())),
            _ => (None, padded),
        };
        if bytes == 0 {
            return;
        }
        let place = only.unwrap_or_else(|| {
            let start = self.take(padded);
            for (&(tensor, block), place) in blocks.iter().zip(places) {
                match half {
                    Half::Send => self.pack(tensor, block, start + place),
                    Half::Receive => self.unpack(tensor, block, start + place),
                }
            }
            CallPlace::Staging(start)
        });
        self.plan.calls.push(match half {
            Half::Send => EngineCall::Send { to: peer, from: place, bytes },
            Half::Receive => EngineCall::Receive { from: peer, to: place, bytes },
        });
    }
}
