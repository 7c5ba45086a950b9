//! Builder of one rank's instruction stream: its registers, their remaining readers, and asynchronous instructions in
//! flight.

use super::flow::{Flow, Holders};
use super::gather::Gathered;
use super::offload::HostCopies;
use super::p2p::{Message, Messages, start_of_receive};
use super::reduce::Reductions;
use super::states::HostStates;
use super::{Bodies, CodegenError};
use ir::entity::PrimaryMap;
use ir::expr::{BinaryExpr, Expr};
use ir::graph::Model;
use ir::ids::{AxisId, BodyId, Reg, Token};
use ir::program::{Instr, RegData, Transfer};
use ir::types::Type;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Key of a value that a rank holds between actions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ValueKey {
    /// A value for a micro-batch.
    Value(usize, u32),
    /// One of a value's cotangents for a micro-batch.
    Cotangent(usize, usize, u32),
    /// The bundle of a run's F for a micro-batch.
    Forward(usize, u32),
    /// The bundle of a run's I for a micro-batch.
    Input(usize, u32),
    /// The bundle of a run's R.
    Reduced(usize),
}

/// A send that has started.
struct SendRequest {
    to: u32,
    /// The action after which the next send to the same rank may wait for it.
    due: usize,
    token: Token,
    reg: Reg,
}

/// A run of a body as the row calls it; what is left out is empty.
#[derive(Default)]
pub(super) struct Invocation {
    pub(super) call: usize,
    pub(super) instance: u32,
    pub(super) microbatch: Option<u32>,
    pub(super) first: bool,
    pub(super) args: Vec<Reg>,
    pub(super) bundles: Vec<Reg>,
    pub(super) results: Vec<Reg>,
    pub(super) keep: Option<Reg>,
}

pub(super) struct StreamBuilder<'a> {
    pub(super) model: &'a Model,
    pub(super) flow: &'a Flow<'a>,
    pub(super) holders: &'a Holders,
    pub(super) rank: u32,
    pub(super) regs: PrimaryMap<Reg, RegData>,
    pub(super) instrs: Vec<Instr>,
    pub(super) held: HashMap<ValueKey, Reg>,
    /// Arguments of later forwards on this rank that read a value.
    pub(super) readers_left: HashMap<ValueKey, usize>,
    /// Runs whose W has run in this step.
    pub(super) accumulated: HashSet<usize>,
    /// The sums that the step graph reads.
    pub(super) squares: Vec<Reg>,
    /// Losses and the like, by name.
    pub(super) totals: Vec<(String, Reg)>,
    pub(super) reductions: Reductions,
    /// The copies of saved activations to host memory and back.
    pub(super) copies: HostCopies,
    /// The parameters that stay gathered.
    pub(super) gathered: Gathered,
    /// The copies of optimizer states that are in host memory.
    pub(super) states: HostStates,
    messages: &'a Messages,
    opened: HashMap<u32, usize>,
    names: HashSet<String>,
    requests: Vec<SendRequest>,
    /// Released while being sent.
    doomed: HashSet<Reg>,
    dead: Vec<Reg>,
    tokens: u32,
    action: usize,
    /// Start of each action in the instructions.
    begins: Vec<usize>,
    /// Starts of receives, and the action before which they run.
    early: Vec<(usize, Instr)>,
}

impl<'a> StreamBuilder<'a> {
    pub(super) fn new(
        model: &'a Model,
        flow: &'a Flow<'a>,
        holders: &'a Holders,
        messages: &'a Messages,
        rank: u32,
        reductions: Reductions,
    ) -> StreamBuilder<'a> {
        StreamBuilder {
            model,
            flow,
            holders,
            rank,
            messages,
            reductions,
            copies: HostCopies::default(),
            gathered: Gathered::default(),
            states: HostStates::default(),
            regs: PrimaryMap::new(),
            instrs: Vec::new(),
            held: HashMap::new(),
            readers_left: HashMap::new(),
            accumulated: HashSet::new(),
            squares: Vec::new(),
            totals: Vec::new(),
            opened: HashMap::new(),
            names: HashSet::new(),
            requests: Vec::new(),
            doomed: HashSet::new(),
            dead: Vec::new(),
            tokens: 0,
            action: 0,
            begins: vec![0],
            early: Vec::new(),
        }
    }

    /// A new register; a name that is taken gets a number.
    pub(super) fn reg(&mut self, name: String, ty: Option<&Type>) -> Reg {
        let (mut unique, mut number) = (name.clone(), 1);
        while !self.names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}.{number}");
        }
        self.regs.push(RegData { name: unique, ty: ty.cloned() })
    }

    /// Runs a body.
    pub(super) fn run(&mut self, body: BodyId, invoke: Invocation) {
        self.call(None, body, invoke);
    }

    /// Starts to run a body.
    pub(super) fn start_run(&mut self, body: BodyId, invoke: Invocation) -> Token {
        let token = self.token();
        self.call(Some(token), body, invoke);
        token
    }

    fn call(&mut self, token: Option<Token>, body: BodyId, invoke: Invocation) {
        let Invocation { call, instance, microbatch, first, args, bundles, results, keep } = invoke;
        self.instrs.push(Instr::Run { token, body, call, instance, microbatch, first, args, bundles, results, keep });
    }

    /// Nothing later reads the register.
    pub(super) fn release(&mut self, reg: Reg) {
        if self.requests.iter().any(|request| request.reg == reg) {
            self.doomed.insert(reg);
        } else {
            self.dead.push(reg);
        }
    }

    /// Frees what has been released.
    pub(super) fn free(&mut self) {
        if !self.dead.is_empty() {
            self.instrs.push(Instr::Free(std::mem::take(&mut self.dead)));
        }
    }

    /// `into += from`, and releases `from`.
    pub(super) fn add(&mut self, into: Reg, from: Reg) {
        self.instrs.push(Instr::Add { into, from });
        self.release(from);
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token::from_u32(self.tokens - 1)
    }

    /// Starts a transfer.
    pub(super) fn start(&mut self, transfer: Transfer, operand: Option<Reg>) -> Token {
        let token = self.token();
        self.instrs.push(Instr::Start { token, transfer, operand });
        token
    }

    /// Starts a transfer and waits for it.
    pub(super) fn transfer(&mut self, transfer: Transfer, operand: Option<Reg>) {
        let token = self.start(transfer, operand);
        self.instrs.push(Instr::Wait { token, result: None });
    }

    /// Starts the send of a message. The wait comes before the next send to the same rank in a later action, so that
    /// one action's sends are under way; those of more where the receive starts later.
    pub(super) fn send(&mut self, to: u32, what: ValueKey, reg: Reg) -> Result<(), CodegenError> {
        let message = Message { from: self.rank, to, what };
        let post = self.messages.send(&message).ok_or(CodegenError::MissingMessage { from: self.rank, to })?;
        let action = self.action;
        self.land(|request| request.to == to && request.due < action);
        let token = self.start(Transfer::Send { peer: self.peer(to)?, tag: post.tag }, Some(reg));
        self.requests.push(SendRequest { to, due: post.due.max(action), token, reg });
        Ok(())
    }

    /// The register of something that an earlier action left or that another rank sends. Messages of a rank are received
    /// in the order in which it sends them; those for later are held. A receive starts with the action before the one that
    /// needs it: one buffer more per direction, and what has been sent by then arrives while that action computes.
    pub(super) fn fetch(&mut self, what: ValueKey, from: u32) -> Result<Reg, CodegenError> {
        if let Some(&reg) = self.held.get(&what) {
            return Ok(reg);
        }
        let message = Message { from, to: self.rank, what };
        let opened = self.opened.get(&from).copied().unwrap_or(0);
        let place = self.messages.send(&message).map(|post| post.tag as usize).filter(|&place| place >= opened);
        let place = place.ok_or(CodegenError::MissingMessage { from, to: self.rank })?;
        let messages = self.messages;
        for (tag, message) in messages.between(from, self.rank).iter().enumerate().take(place + 1).skip(opened) {
            self.receive(*message, tag as u32)?;
        }
        self.opened.insert(from, place + 1);
        Ok(self.held[&what])
    }

    fn receive(&mut self, message: Message, tag: u32) -> Result<(), CodegenError> {
        let (name, ty) = match message.what {
            ValueKey::Value(made, mb) => (format!("{}:{mb}", self.flow.made[made].name), &self.flow.made[made].ty),
            ValueKey::Cotangent(made, index, mb) => {
                let ty = super::microbatch::cotangent_type(self.model, self.flow, made, index);
                (format!("{}.d:{mb}", self.flow.made[made].name), ty)
            }
            ValueKey::Forward(..) | ValueKey::Input(..) | ValueKey::Reduced(..) => {
                return Err(CodegenError::MissingMessage { from: message.from, to: message.to });
            }
        };
        let transfer = Transfer::Recv { peer: self.peer(message.from)?, tag, ty: ty.clone() };
        let (reg, token) = (self.reg(name, Some(ty)), self.token());
        self.early.push((start_of_receive(self.action), Instr::Start { token, transfer, operand: None }));
        self.instrs.push(Instr::Wait { token, result: Some(reg) });
        self.held.insert(message.what, reg);
        if let ValueKey::Value(made, mb) = message.what {
            self.readers_left.insert(message.what, self.flow.local_uses(made, mb, self.rank));
        }
        Ok(())
    }

    /// A pipeline coordinate relative to this rank's, so that ranks with the same part have the same row.
    fn peer(&self, rank: u32) -> Result<Expr, CodegenError> {
        let pp: AxisId = self.model.mesh.pipeline().ok_or(CodegenError::Stages)?;
        let (op, distance) =
            if rank >= self.rank { (BinaryExpr::Add, rank - self.rank) } else { (BinaryExpr::Sub, self.rank - rank) };
        Ok(Expr::binary(op, Expr::Coordinate(pp), Expr::Int(i64::from(distance))))
    }

    /// Begins the next action.
    pub(super) fn end_action(&mut self) {
        self.action += 1;
        self.begins.push(self.instrs.len());
    }

    /// Waits for all sends; puts the starts of receives where they belong, and numbers tokens as they start.
    pub(super) fn end(&mut self) -> Vec<Instr> {
        self.land(|_| true);
        let mut early = std::mem::take(&mut self.early).into_iter().peekable();
        let mut begins = self.begins.iter().enumerate().peekable();
        let mut placed = Vec::new();
        for (at, instr) in std::mem::take(&mut self.instrs).into_iter().enumerate() {
            while let Some((action, _)) = begins.next_if(|(_, begin)| **begin == at) {
                while let Some((_, start)) = early.next_if(|(of, _)| *of == action) {
                    placed.push(start);
                }
            }
            placed.push(instr);
        }
        number_tokens(&mut placed);
        placed
    }

    fn land(&mut self, lands: impl Fn(&SendRequest) -> bool) {
        let (landed, flying): (Vec<SendRequest>, Vec<SendRequest>) =
            std::mem::take(&mut self.requests).into_iter().partition(lands);
        self.requests = flying;
        for request in landed {
            self.instrs.push(Instr::Wait { token: request.token, result: None });
            let still = self.requests.iter().any(|other| other.reg == request.reg);
            if !still && self.doomed.remove(&request.reg) {
                self.dead.push(request.reg);
            }
        }
        self.free();
    }

    /// Adds up a loss of a micro-batch. Values of other types have totals of their own until they are reduced.
    pub(super) fn total(&mut self, name: &str, reg: Reg) {
        let same = self.totals.iter().find(|(n, total)| n == name && self.regs[*total].ty == self.regs[reg].ty);
        match same {
            Some(&(_, into)) => self.add(into, reg),
            None => self.totals.push((name.to_string(), reg)),
        }
    }

    /// Reduces partial totals, sums them over the ranks that have them, and outputs them.
    pub(super) fn give_totals(&mut self, bodies: &mut Bodies, ranks: &BTreeMap<String, Vec<u32>>) {
        let mut reduced: BTreeMap<String, Reg> = BTreeMap::new();
        for (name, reg) in std::mem::take(&mut self.totals) {
            let reg = self.pay(&name, reg, bodies);
            match reduced.get(&name) {
                Some(&into) => self.add(into, reg),
                None => drop(reduced.insert(name, reg)),
            }
        }
        for (name, reg) in reduced {
            self.sum(reg, &ranks[&name]);
            self.instrs.push(Instr::Out { name, reg });
            self.release(reg);
        }
        self.free();
    }

    /// Sums a register over ranks, this among them.
    pub(super) fn sum(&mut self, reg: Reg, ranks: &[u32]) {
        if ranks.len() > 1 {
            self.transfer(Transfer::Sum { ranks: ranks.to_vec() }, Some(reg));
        }
    }

    fn pay(&mut self, name: &str, reg: Reg, bodies: &mut Bodies) -> Reg {
        let Some(ty) = self.regs[reg].ty.clone().filter(|ty| ty.partial.is_some()) else { return reg };
        let body = bodies.paying(name, &ty);
        let results = bodies.all[body].results.clone();
        let result = self.reg(name.to_string(), Some(&bodies.all[body].values[results[0]].ty));
        self.run(body, Invocation { args: vec![reg], results: vec![result], ..Invocation::default() });
        self.release(reg);
        result
    }
}

/// Numbers tokens from 0 in the order in which they start.
fn number_tokens(instrs: &mut [Instr]) {
    let mut numbers: HashMap<Token, Token> = HashMap::new();
    for instr in instrs {
        if let Instr::Run { token: Some(token), .. } | Instr::Start { token, .. } | Instr::Wait { token, .. } = instr {
            let next = Token::from_u32(numbers.len() as u32);
            *token = *numbers.entry(*token).or_insert(next);
        }
    }
}
