//! Level 4: bodies. The grammar is in [`crate::program`].

use super::cursor::{Failed, Parsed, Parser, Scope};
use super::lex::Kind;
use crate::catalogue::Code;
use crate::fused::Fused;
use crate::ids::{BlockId, Token, Value};
use crate::ops::Op;
use crate::program::{Body, BodyArg, BodyInstr, BodyKind, Program, Source};
use cranelift_entity::PrimaryMap;

/// The words of sources.
pub(super) const SOURCES: [(Source, &str); 5] = [
    (Source::Saved, "saved"),
    (Source::Param, "param"),
    (Source::State, "state"),
    (Source::Gradient, "grad"),
    (Source::Scalar, "scalar"),
];

const KINDS: [BodyKind; 8] =
    [BodyKind::G, BodyKind::F, BodyKind::I, BodyKind::W, BodyKind::B, BodyKind::R, BodyKind::N, BodyKind::U];

impl Parser<'_> {
    /// `program @name microbatches=4 { bodies classes }`
    pub(super) fn program(&mut self) -> Parsed<Program> {
        self.expect("program")?;
        let name = self.take(Kind::At, "the program's name")?.to_string();
        let microbatches = self.field("microbatches")?;
        self.expect("{")?;
        let mut program = Program { name, microbatches, bodies: PrimaryMap::new(), classes: Vec::new() };
        while self.at("body") {
            let body = self.body()?;
            program.bodies.push(body);
        }
        while self.at("class") {
            let class = self.class(&program)?;
            program.classes.push(class);
        }
        self.expect("}")?;
        self.no_more()?;
        Ok(program)
    }

    /// `body @layer.F(%x: type; %w: param type) -> (%y) save (%x) { instructions }`
    fn body(&mut self) -> Parsed<Body> {
        self.expect("body")?;
        let (name, kind, block) = self.body_name()?;
        self.scope = self.body_scope(kind, block);
        self.expect("(")?;
        let args = self.body_args()?;
        let results_at = if self.eat("->") { Some(self.body_values()?) } else { None };
        let keeps_at = if self.eat("save") { Some(self.body_values()?) } else { None };
        self.expect("{")?;
        let mut instrs = Vec::new();
        let mut failed = false;
        while !self.done() && !self.at("}") && !self.at("frame") {
            let place = self.place();
            match self.body_instr() {
                Ok(instr) => instrs.push(instr),
                Err(_) => {
                    failed = true;
                    if self.place() == place {
                        self.recover(place);
                    }
                }
            }
        }
        let frame = if !failed && self.at("frame") { Some(self.frame()?) } else { None };
        self.expect("}")?;
        if failed {
            return Err(Failed);
        }
        let results = self.defined(results_at)?;
        let keeps = self.defined(keeps_at)?;
        let values = std::mem::take(&mut self.scope.values);
        Ok(Body { name, block, kind, values, args, instrs, results, keeps, frame })
    }

    fn body_name(&mut self) -> Parsed<(String, BodyKind, Option<BlockId>)> {
        let span = self.span();
        let name = self.take(Kind::At, "the body's name")?;
        let (block, letter) = name.rsplit_once('.').unwrap_or(("", name));
        let Some(kind) = KINDS.into_iter().find(|kind| kind.letter().to_string() == letter) else {
            let message = format!("`@{name}` must end in `.` and one of G, F, I, W, B, R, N, U");
            return Err(self.fail(Code::BadBody, span, message));
        };
        let block = if kind == BodyKind::N { None } else { Some(self.block_named(block, span)?) };
        Ok((name.to_string(), kind, block))
    }

    /// A body's values have the ids of its block.
    fn body_scope(&self, kind: BodyKind, block: Option<BlockId>) -> Scope {
        let graph = match (block, &self.model.step) {
            (Some(block), _) => Some(&self.model.blocks[block]),
            (None, Some(step)) if kind == BodyKind::N => Some(&step.graph),
            _ => None,
        };
        let values = graph.map_or_else(PrimaryMap::new, |graph| graph.values.clone());
        let reserved = values.iter().map(|(value, data)| (data.name.clone(), value)).collect();
        Scope { values, reserved, ..Scope::default() }
    }

    fn body_args(&mut self) -> Parsed<Vec<BodyArg>> {
        let mut args = Vec::new();
        let mut late = false;
        loop {
            late |= self.eat(";");
            if self.eat(")") {
                return Ok(args);
            }
            let span = self.span();
            let name = self.take(Kind::Value, "an argument")?;
            self.expect(":")?;
            let source = SOURCES.into_iter().find(|(_, word)| self.eat(word)).map_or(Source::Row, |(source, _)| source);
            if late == (source == Source::Row) {
                return Err(self.fail(Code::MisplacedArgument, span, "arguments from the row come before `;`"));
            }
            let ty = self.ty()?;
            let value = self.define(name, span, ty)?;
            if matches!(source, Source::Param | Source::State | Source::Gradient) {
                self.scope.storable.insert(value);
            }
            args.push(BodyArg { value, source });
            if !self.at(")") && !self.at(";") && !self.eat(",") {
                return Err(self.expected("`,`, `;` or `)`"));
            }
        }
    }

    /// `(%a, %b)`, which are defined later: the positions of their names.
    fn body_values(&mut self) -> Parsed<Vec<usize>> {
        self.expect("(")?;
        self.list(")", |p| {
            let place = p.place();
            p.take(Kind::Value, "a value").map(|_| place)
        })
    }

    fn defined(&mut self, places: Option<Vec<usize>>) -> Parsed<Vec<Value>> {
        let places = places.unwrap_or_default();
        places
            .into_iter()
            .map(|place| (self.tokens()[place].text, self.span_of(place)))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(name, span)| self.lookup(name, span))
            .collect()
    }

    fn body_instr(&mut self) -> Parsed<BodyInstr> {
        if self.eat("free") {
            return Ok(BodyInstr::Free(self.read_values()?));
        }
        if self.at("fused") {
            return Ok(BodyInstr::Fused(self.fused()?));
        }
        if self.ahead_is(1, "=") && self.ahead_is(2, "start") {
            return self.body_start();
        }
        if let Some(waited) = self.body_wait()? {
            return Ok(waited);
        }
        Ok(BodyInstr::Compute(self.stmt()?))
    }

    /// `fused -> (%a, %b) { statements }`
    fn fused(&mut self) -> Parsed<Fused> {
        self.expect("fused")?;
        self.expect("->")?;
        let outs_at = self.body_values()?;
        self.expect("{")?;
        let mut stmts = Vec::new();
        while !self.done() && !self.at("}") {
            stmts.push(self.stmt()?);
        }
        self.expect("}")?;
        Ok(Fused { stmts, outs: self.defined(Some(outs_at))? })
    }

    fn read_values(&mut self) -> Parsed<Vec<Value>> {
        let names = self.values()?;
        names.into_iter().map(|(name, span)| self.lookup(name, span)).collect()
    }

    /// `%t0`
    pub(super) fn token(&mut self) -> Parsed<Token> {
        let span = self.span();
        let name = self.take(Kind::Value, "a token")?;
        match token_of(name) {
            Some(token) => Ok(token),
            None => Err(self.fail(Code::UnexpectedToken, span, format!("a token is `%t` and a number, not `%{name}`"))),
        }
    }

    /// `%t0 = start all_reduce(%6, over={tp})`
    fn body_start(&mut self) -> Parsed<BodyInstr> {
        let token = self.token()?;
        self.expect("=")?;
        self.expect("start")?;
        let span = self.span();
        match self.application(&[])? {
            (Op::Collective(collective), operands) => Ok(BodyInstr::Start { token, collective, operands }),
            (op, _) => Err(self.fail(
                Code::BadBody,
                span,
                format!("`{}` is not a transfer; only transfers can be started", op.name()),
            )),
        }
    }

    /// `%7: type = wait %t0`
    fn body_wait(&mut self) -> Parsed<Option<BodyInstr>> {
        let equals = (0..).take_while(|&by| self.ahead(by).is_some_and(|token| by == 0 || !token.first));
        let waits = equals.into_iter().any(|by| self.ahead_is(by, "=") && self.ahead_is(by + 1, "wait"));
        if !waits {
            return Ok(None);
        }
        let stated = self.stated()?;
        self.expect("=")?;
        self.expect("wait")?;
        let token = self.token()?;
        let results = stated.into_iter().map(|(name, span, ty)| self.define(name, span, ty)).collect::<Parsed<_>>()?;
        Ok(Some(BodyInstr::Wait { token, results }))
    }
}

/// The token of a name: `t` and a number that an id can be.
pub(super) fn token_of(name: &str) -> Option<Token> {
    let number = name.strip_prefix('t')?.parse().ok()?;
    (number < u32::MAX).then(|| Token::from_u32(number))
}
