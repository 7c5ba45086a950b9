//! Blocks with their sections, and the step graph.

use super::cursor::{Failed, Parsed, Parser, Scope};
use super::lex::Kind;
use crate::catalogue::Code;
use crate::diag::Diagnostic;
use crate::graph::{Arg, ArgKind, Block, ResultKind, Section, SectionKind, Span, Step};
use crate::ids::Value;
use crate::types::Type;

/// The words of argument kinds.
pub(super) const ARG_KINDS: [(ArgKind, &str); 4] =
    [(ArgKind::Input, "input"), (ArgKind::Const, "const"), (ArgKind::Param, "param"), (ArgKind::State, "state")];

/// The words of result kinds.
pub(super) const RESULT_KINDS: [(ResultKind, &str); 5] = [
    (ResultKind::Loss, "loss"),
    (ResultKind::Auxiliary, "auxiliary"),
    (ResultKind::Regulariser, "regulariser"),
    (ResultKind::Accum, "accum"),
    (ResultKind::Metric, "metric"),
];

/// A result as stated in the head.
type StatedResult = (ResultKind, Type, Span);

impl Parser<'_> {
    /// `block @name(args) -> results { sections }`
    pub(super) fn block(&mut self) -> Parsed<()> {
        let comments = self.take_comments();
        let loose = self.loose_comments.len();
        let start = self.span();
        self.expect("block")?;
        let name_span = self.span();
        let name = self.take(Kind::At, "the block's name")?;
        self.scope = Scope::default();
        if self.known.blocks.contains_key(name) {
            return Err(self.fail(Code::Redefinition, name_span, format!("block `@{name}` is already defined")));
        }
        self.failed_names.insert(name.to_string());
        let mut block = Block { name: name.to_string(), comments, ..Block::default() };
        self.expect("(")?;
        block.args = self.args()?;
        let stated = if self.eat("->") { self.stated_results()? } else { Vec::new() };
        block.results = stated.iter().map(|(kind, ..)| *kind).collect();
        block.span = self.since(start);
        self.expect("{")?;
        self.sections(&mut block, &stated)?;
        self.expect("}")?;
        self.no_more()?;
        block.values = std::mem::take(&mut self.scope.values);
        block.comments.extend(self.loose_comments.drain(loose..));
        self.failed_names.remove(name);
        let id = self.model.blocks.push(block);
        self.known.blocks.insert(name.to_string(), id);
        Ok(())
    }

    /// `%x: type, %tok: input type; %w: param type)`
    fn args(&mut self) -> Parsed<Vec<Arg>> {
        let mut args = Vec::new();
        let mut late = false;
        while !self.eat(")") {
            let (span, kind, value) = self.arg()?;
            if late == kind.is_passed() {
                let message = "values and inputs come before `;`; constants, parameters and states after it";
                return Err(self.fail(Code::MisplacedArgument, span, message));
            }
            args.push(Arg { value, kind });
            if !late && self.eat(";") {
                late = true;
            } else if !self.at(")") && !self.eat(",") {
                return Err(self.expected("`,`, `;` or `)`"));
            } else if !late && self.eat(";") {
                late = true;
            }
        }
        Ok(args)
    }

    fn arg(&mut self) -> Parsed<(Span, ArgKind, Value)> {
        let span = self.span();
        let name = self.take(Kind::Value, "an argument")?;
        self.expect(":")?;
        let kind = ARG_KINDS.into_iter().find(|(_, word)| self.eat(word)).map_or(ArgKind::Value, |(kind, _)| kind);
        let ty = self.ty()?;
        Ok((span, kind, self.define(name, span, ty)?))
    }

    fn stated_results(&mut self) -> Parsed<Vec<StatedResult>> {
        let mut all = Vec::new();
        while !self.at("{") {
            let start = self.span();
            let word = RESULT_KINDS.into_iter().find(|(_, word)| self.eat(word));
            let ty = self.ty()?;
            all.push((word.map_or(ResultKind::Value, |(kind, _)| kind), ty, self.since(start)));
            if !self.eat(",") {
                break;
            }
        }
        Ok(all)
    }

    fn sections(&mut self, block: &mut Block, stated: &[StatedResult]) -> Parsed<()> {
        if self.at("G") {
            self.bump();
            self.expect(":")?;
            block[SectionKind::G] = self.section(false)?;
        }
        if self.at("F") {
            self.bump();
            self.expect(":")?;
        }
        block[SectionKind::F] = self.section(true)?;
        self.check_returns(&block[SectionKind::F].ret, stated)?;
        if self.at("I") {
            self.bump();
            self.expect("(")?;
            let args = self.list(")", |p| p.arg().map(|(_, _, value)| value))?;
            self.expect(":")?;
            block[SectionKind::I] = Section { args, ..self.section(true)? };
        }
        if self.at("W") {
            self.bump();
            self.expect(":")?;
            block[SectionKind::W] = self.section(false)?;
        }
        if self.at("U") {
            self.bump();
            self.expect(":")?;
            let kept = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Param | ArgKind::State));
            self.scope.storable = kept.map(|arg| arg.value).collect();
            block[SectionKind::U] = self.section(false)?;
        }
        Ok(())
    }

    /// Statements up to `return` or a token that cannot begin one. It continues after a failed statement, and fails at the
    /// end.
    fn section(&mut self, must_return: bool) -> Parsed<Section> {
        let mut section = Section::default();
        let mut failed = false;
        while self.at_kind(Kind::Value) {
            match self.stmt() {
                Ok(stmt) => section.stmts.push(stmt),
                Err(_) => failed = true,
            }
        }
        if must_return && !self.at("return") {
            return Err(self.expected("a statement or `return`"));
        }
        if self.eat("return") {
            for (name, span) in self.values()? {
                match self.lookup(name, span) {
                    Ok(value) => section.ret.push(value),
                    Err(_) => failed = true,
                }
            }
        }
        // The block has failed; its remaining sections are still checked.
        if failed { self.failing_rest() } else { Ok(section) }
    }

    /// Parses the rest of a failed block, only for its diagnostics.
    fn failing_rest(&mut self) -> Parsed<Section> {
        while !self.done() && !self.at("}") {
            if self.at("I") && self.ahead_is(1, "(") {
                self.bump();
                self.bump();
                self.list(")", |p| p.arg())?;
                self.expect(":")?;
            } else if self.ahead_is(1, ":") && ["F", "W", "U"].iter().any(|label| self.at(label)) {
                if self.at("U") {
                    self.scope.storable = self.scope.values.keys().collect();
                }
                self.bump();
                self.bump();
            } else if self.eat("return") {
                self.values()?;
            } else if self.at_kind(Kind::Value) {
                // Only its diagnostics are needed.
                let _ = self.stmt();
            } else {
                self.bump();
            }
        }
        Err(Failed)
    }

    /// Checks that `F` returns the results of the head.
    fn check_returns(&mut self, returned: &[Value], stated: &[StatedResult]) -> Parsed<()> {
        let span = self.since(self.span());
        if returned.len() != stated.len() {
            let message = format!("the head states {} results, `return` gives {}", stated.len(), returned.len());
            return Err(self.fail(Code::ReturnMismatch, span, message));
        }
        for (&value, (_, want, at)) in returned.iter().zip(stated) {
            let data = &self.scope.values[value];
            if data.ty != *want {
                let message = format!(
                    "`%{}` is {}, the head declares {}",
                    data.name,
                    self.print_type(&data.ty),
                    self.print_type(want)
                );
                let place = self.scope.places.get(&value).copied().unwrap_or_default();
                let note = format!("%{}: {}", data.name, self.print_type(&data.ty));
                return Err(self.report(Diagnostic::new(Code::ReturnMismatch, message).at(*at).since(place, note)));
            }
        }
        Ok(())
    }

    /// `step(args) { .. return .. }`
    pub(super) fn step(&mut self) -> Parsed<()> {
        let start = self.span();
        self.expect("step")?;
        self.scope = Scope::default();
        let mut graph = Block { name: "step".to_string(), ..Block::default() };
        self.expect("(")?;
        graph.args = self.args()?;
        graph.span = self.since(start);
        self.expect("{")?;
        graph[SectionKind::F] = self.section(true)?;
        graph.results = vec![ResultKind::Value; graph[SectionKind::F].ret.len()];
        self.expect("}")?;
        self.no_more()?;
        graph.values = std::mem::take(&mut self.scope.values);
        self.model.step = Some(Step { graph });
        Ok(())
    }
}
