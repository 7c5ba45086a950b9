//! Level 4: the rows of classes. The grammar is in [`crate::program`].

use super::cursor::{Failed, Parsed, Parser};
use super::lex::Kind;
use super::parse_program::token_of;
use crate::catalogue::Code;
use crate::graph::{LossMean, Span};
use crate::ids::{BodyId, ParamId, Reg, Token};
use crate::program::{Class, Instr, Program, RegData, Transfer};
use crate::types::{DType, Type};
use cranelift_entity::PrimaryMap;
use std::collections::HashMap;

/// The registers of a row so far, and the result types of transfers; none for a bundle.
struct RowRegisters {
    regs: PrimaryMap<Reg, RegData>,
    names: HashMap<String, Reg>,
    coming: HashMap<Token, Option<Type>>,
}

/// The names of transfers.
const TRANSFERS: [&str; 9] =
    ["send", "recv", "sum", "sum_gradient", "share_param", "offload", "load", "load_states", "store_states"];

/// Names of results with their places.
type Names<'s> = Vec<(&'s str, Span)>;

impl<'s> Parser<'s> {
    /// `class 0..2 { params .. instructions }`
    pub(super) fn class(&mut self, program: &Program) -> Parsed<Class> {
        self.expect("class")?;
        let ranks = self.range()?;
        self.expect("{")?;
        let mut params = Vec::new();
        while self.eat("params") {
            params.extend(self.held_list()?);
        }
        let mut row = RowRegisters { regs: PrimaryMap::new(), names: HashMap::new(), coming: HashMap::new() };
        let mut arena = if self.at("memory") { Some(self.arena()?) } else { None };
        let mut instrs = Vec::new();
        while !self.done() && !self.at("}") {
            instrs.push(self.instr(program, &mut row)?);
            if let Some(arena) = &mut arena {
                let places = self.places_at()?;
                arena.at.push(places);
            }
        }
        self.expect("}")?;
        Ok(Class { ranks, regs: row.regs, instrs, params, arena })
    }

    fn held_list(&mut self) -> Parsed<Vec<(ParamId, u32)>> {
        let mut all = Vec::new();
        loop {
            all.extend(self.held()?);
            if !self.eat(",") {
                return Ok(all);
            }
        }
    }

    /// `%emb`, `%layer[3].w1`, or `%layer[3]` for all fields of the element.
    fn held(&mut self) -> Parsed<Vec<(ParamId, u32)>> {
        let span = self.span();
        let name = self.take(Kind::Value, "a parameter")?;
        let mut instance = 0;
        let mut field = None;
        if self.eat("[") {
            instance = self.int("an index")?;
            self.expect("]")?;
            if self.eat(".") {
                field = Some(self.take(Kind::Ident, "a field")?);
            }
        }
        let chosen = self.model.params.iter().filter(|(_, param)| {
            param.name == name && (field.is_none() || param.field.as_deref() == field) && instance < param.instances()
        });
        let found: Vec<(ParamId, u32)> = chosen.map(|(id, _)| (id, instance)).collect();
        if found.is_empty() {
            return Err(self.fail(Code::UnknownParam, span, format!("there is no parameter `%{name}`")));
        }
        Ok(found)
    }

    pub(super) fn held_one(&mut self) -> Parsed<(ParamId, u32)> {
        let span = self.span();
        match self.held()?[..] {
            [one] => Ok(one),
            _ => Err(self.fail(Code::UnknownParam, span, "name one field of it")),
        }
    }

    fn instr(&mut self, program: &Program, row: &mut RowRegisters) -> Parsed<Instr> {
        if self.at("free") || self.at("out") || self.at("wait") || self.at("run") {
            return self.instr_without_result(program, row);
        }
        let names = self.values()?;
        if self.eat("+=") {
            let into = self.one_reg(row, &names)?;
            return Ok(Instr::Add { into, from: self.reg(row)? });
        }
        self.expect("=")?;
        match () {
            () if self.at("feed") => self.feed(row, &names),
            () if self.eat("loss_grad") => self.loss_grad(row, &names, LossMean::Labels),
            () if self.eat("regulariser_grad") => self.loss_grad(row, &names, LossMean::Microbatches),
            () if self.at("run") => self.run(program, row, None, &names),
            () if self.at("start") && self.ahead_is(1, "run") => self.start_run(program, row, &names),
            () if self.at("start") => self.start(program, row, &names),
            () if self.at("wait") => self.wait(row, &names),
            () => Err(self.expected("`feed`, `loss_grad`, `run`, `start` or `wait`")),
        }
    }

    fn instr_without_result(&mut self, program: &Program, row: &mut RowRegisters) -> Parsed<Instr> {
        if self.at("run") {
            return self.run(program, row, None, &Vec::new());
        }
        if self.at("wait") {
            return self.wait(row, &Vec::new());
        }
        if self.eat("free") {
            let names = self.values()?;
            return Ok(Instr::Free(
                names.into_iter().map(|(name, span)| self.reg_named(row, name, span)).collect::<Parsed<_>>()?,
            ));
        }
        self.expect("out")?;
        if !self.at_kind(Kind::Ident) && !self.at_kind(Kind::Int) {
            return Err(self.expected("a name"));
        }
        let name = self.bump().to_string();
        Ok(Instr::Out { name, reg: self.reg(row)? })
    }

    fn feed(&mut self, row: &mut RowRegisters, names: &Names<'s>) -> Parsed<Instr> {
        self.expect("feed")?;
        let span = self.span();
        let name = self.take(Kind::Value, "an input of the model")?;
        let input = self.model_value(name, span)?;
        let ty = self.model.inputs.iter().find(|known| known.value == input).map(|known| known.ty.clone());
        if ty.is_none() {
            return Err(self.fail(Code::UndefinedValue, span, format!("`%{name}` is not an input of the model")));
        }
        let microbatch = self.field("microbatch")?;
        Ok(Instr::Feed { out: self.new_reg(row, names, ty)?, input, microbatch })
    }

    /// `%t0, %y:0 = start run @layer.R ..`
    fn start_run(&mut self, program: &Program, row: &mut RowRegisters, names: &Names<'s>) -> Parsed<Instr> {
        let (token, results) = names.split_at(1);
        let token = self.row_token(&token.to_vec())?;
        self.expect("start")?;
        self.run(program, row, Some(token), &results.to_vec())
    }

    /// `%y:0 = run @layer.F call=1 instance=0 microbatch=0 (%x:0; %bundle) save %layer.0.F:0`
    fn run(
        &mut self,
        program: &Program,
        row: &mut RowRegisters,
        token: Option<Token>,
        names: &Names<'s>,
    ) -> Parsed<Instr> {
        let start = self.span();
        self.expect("run")?;
        let body = self.body_named(program)?;
        let (call, instance) = (self.field("call")?, self.field("instance")?);
        let microbatch = if self.at("microbatch") { Some(self.field("microbatch")?) } else { None };
        let first = self.eat("first");
        self.expect("(")?;
        let args = self.regs(row)?;
        let bundles = if self.eat(";") { self.regs(row)? } else { Vec::new() };
        self.expect(")")?;
        let keep = if self.eat("save") {
            let kept = self.values()?;
            Some(self.new_reg(row, &kept, None)?)
        } else {
            None
        };
        let wanted = &program.bodies[body].results;
        if wanted.len() != names.len() {
            let message =
                format!("`@{}` gives {} results, not {}", program.bodies[body].name, wanted.len(), names.len());
            return Err(self.fail(Code::CallMismatch, self.since(start), message));
        }
        let types = wanted.iter().map(|&value| program.bodies[body].values[value].ty.clone());
        let results = names.iter().zip(types).map(|(&name, ty)| self.new_reg(row, &vec![name], Some(ty)));
        let results = results.collect::<Parsed<_>>()?;
        Ok(Instr::Run { token, body, call, instance, microbatch, first, args, bundles, results, keep })
    }

    fn body_named(&mut self, program: &Program) -> Parsed<BodyId> {
        let span = self.span();
        let name = self.take(Kind::At, "a body")?;
        match program.bodies.iter().find(|(_, body)| body.name == name) {
            Some((id, _)) => Ok(id),
            None => {
                let known: Vec<String> = program.bodies.values().map(|body| body.name.clone()).collect();
                Err(self.unknown(Code::UnknownBlock, span, format!("there is no body `@{name}`"), name, &known))
            }
        }
    }

    /// `%t0 = start send(%x, peer=$pp+1, tag=0)`
    fn start(&mut self, program: &Program, row: &mut RowRegisters, names: &Names<'s>) -> Parsed<Instr> {
        let token = self.row_token(names)?;
        self.expect("start")?;
        let span = self.span();
        let name = self.take(Kind::Ident, "a transfer")?;
        self.expect("(")?;
        let mut operand = None;
        let transfer = match name {
            "send" => {
                operand = Some(self.reg(row)?);
                self.expect(",")?;
                let (peer, tag) = self.peer()?;
                Transfer::Send { peer, tag }
            }
            "recv" => {
                let (peer, tag) = self.peer()?;
                self.expect(":")?;
                let ty = self.ty()?;
                row.coming.insert(token, Some(ty.clone()));
                return Ok(Instr::Start { token, transfer: Transfer::Recv { peer, tag, ty }, operand });
            }
            "sum" => {
                operand = Some(self.reg(row)?);
                Transfer::Sum { ranks: self.ranks()? }
            }
            "sum_gradient" => {
                let (param, instance) = self.held_one()?;
                Transfer::SumGradient { param, instance, ranks: self.ranks()? }
            }
            "share_param" => {
                let (param, instance) = self.held_one()?;
                self.expect(",")?;
                let from = self.field("from")?;
                Transfer::ShareParam { param, instance, from, ranks: self.ranks()? }
            }
            "offload" | "load" => {
                operand = Some(self.reg(row)?);
                self.expect(")")?;
                row.coming.insert(token, None);
                if name == "load" { Transfer::Load } else { Transfer::Offload }
            }
            "load_states" => {
                let body = self.body_named(program)?;
                let (call, instance) = self.states()?;
                row.coming.insert(token, None);
                Transfer::LoadStates { body, call, instance }
            }
            "store_states" => {
                operand = Some(self.reg(row)?);
                let (call, instance) = self.states()?;
                Transfer::StoreStates { call, instance }
            }
            _ => {
                let known = TRANSFERS.map(str::to_string);
                return Err(self.unknown(Code::BadBody, span, format!("there is no transfer `{name}`"), name, &known));
            }
        };
        Ok(Instr::Start { token, transfer, operand })
    }

    /// `, call=0, instance=3)`
    fn states(&mut self) -> Parsed<(usize, u32)> {
        self.expect(",")?;
        let call = self.field("call")?;
        self.expect(",")?;
        let instance = self.field("instance")?;
        self.expect(")")?;
        Ok((call, instance))
    }

    /// `peer=$pp+1, tag=0)`
    fn peer(&mut self) -> Parsed<(crate::expr::Expr, u32)> {
        self.expect("peer")?;
        self.expect("=")?;
        let peer = self.expr()?;
        self.expect(",")?;
        let tag = self.field("tag")?;
        self.expect(")")?;
        Ok((peer, tag))
    }

    /// `, ranks=[0, 3])`
    fn ranks(&mut self) -> Parsed<Vec<u32>> {
        for text in [",", "ranks", "=", "["] {
            self.expect(text)?;
        }
        let ranks = self.list("]", |p| p.int("a pipeline rank"))?;
        self.expect(")")?;
        Ok(ranks)
    }

    fn wait(&mut self, row: &mut RowRegisters, names: &Names<'s>) -> Parsed<Instr> {
        self.expect("wait")?;
        let token = self.token()?;
        if names.is_empty() {
            return Ok(Instr::Wait { token, result: None });
        }
        let Some(ty) = row.coming.remove(&token) else {
            return Err(self.fail(Code::BadBody, names[0].1, "this transfer has no result"));
        };
        Ok(Instr::Wait { token, result: Some(self.new_reg(row, names, ty)?) })
    }

    fn row_token(&mut self, names: &Names<'s>) -> Parsed<Token> {
        match names.first().and_then(|(name, _)| token_of(name)) {
            Some(token) if names.len() == 1 => Ok(token),
            _ => Err(self.expected("one token `%t0` before `=`")),
        }
    }

    fn reg(&mut self, row: &RowRegisters) -> Parsed<Reg> {
        let span = self.span();
        let name = self.take(Kind::Value, "a register")?;
        self.reg_named(row, name, span)
    }

    fn regs(&mut self, row: &RowRegisters) -> Parsed<Vec<Reg>> {
        let names = self.values()?;
        names.into_iter().map(|(name, span)| self.reg_named(row, name, span)).collect()
    }

    fn one_reg(&mut self, row: &RowRegisters, names: &Names<'s>) -> Parsed<Reg> {
        match names[..] {
            [(name, span)] => self.reg_named(row, name, span),
            _ => Err(self.expected("one register before `+=`")),
        }
    }

    fn reg_named(&mut self, row: &RowRegisters, name: &str, span: Span) -> Parsed<Reg> {
        match row.names.get(name) {
            Some(&reg) => Ok(reg),
            None => Err(self.fail(Code::UndefinedValue, span, format!("there is no register `%{name}` yet"))),
        }
    }

    /// The cotangent of losses.
    fn loss_grad(&mut self, row: &mut RowRegisters, names: &Names<'s>, mean: LossMean) -> Parsed<Instr> {
        Ok(Instr::LossGrad { out: self.new_reg(row, names, Some(Type::scalar(DType::F32)))?, mean })
    }

    fn new_reg(&mut self, row: &mut RowRegisters, names: &Names<'s>, ty: Option<Type>) -> Parsed<Reg> {
        let [(name, span)] = names[..] else {
            self.expected("one register");
            return Err(Failed);
        };
        if row.names.contains_key(name) {
            return Err(self.fail(Code::Redefinition, span, format!("register `%{name}` is already defined")));
        }
        let reg = row.regs.push(RegData { name: name.to_string(), ty });
        row.names.insert(name.to_string(), reg);
        Ok(reg)
    }
}
