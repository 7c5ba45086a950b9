//! Statements: `%y: f32[b, h] = einsum(%x, %w, eq="..")`.

use super::cursor::{Failed, Parsed, Parser};
use super::lex::Kind;
use crate::catalogue::Code;
use crate::diag::{Diagnostic, nearest};
use crate::graph::{Span, Stmt, ValueData};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Collective, Iota, Op, Shapes, names};
use crate::types::Type;

/// A stated result: name, span, type.
pub(super) type Stated<'s> = (&'s str, Span, Type);

/// An op as written, before it is resolved.
struct Written<'s> {
    name: &'s str,
    name_span: Span,
    span: Span,
    operands: Vec<Value>,
    attrs: Vec<(String, Attr)>,
    attr_spans: Vec<Span>,
}

impl<'s> Parser<'s> {
    /// The value of a name in scope.
    pub(super) fn lookup(&mut self, name: &str, span: Span) -> Parsed<Value> {
        if let Some(&value) = self.scope.names.get(name) {
            return Ok(value);
        }
        if self.scope.poisoned.contains(name) {
            return Err(Failed);
        }
        let mut known: Vec<String> = self.scope.names.keys().map(|name| format!("%{name}")).collect();
        known.sort();
        let near = nearest(&format!("%{name}"), known.iter().map(String::as_str))
            .map(|near| format!("did you mean `{near}`?"));
        let help = near.unwrap_or_else(|| "a value is defined before it is read".to_string());
        let message = format!("`%{name}` is not defined here");
        Err(self.report(Diagnostic::new(Code::UndefinedValue, message).at(span).help(help)))
    }

    /// Adds a value to the scope, or stores into an argument that may be stored into.
    pub(super) fn define(&mut self, name: &str, span: Span, ty: Type) -> Parsed<Value> {
        if let Some(&value) = self.scope.names.get(name) {
            if self.scope.storable.remove(&value) {
                self.check_stored(value, span, &ty)?;
                return Ok(value);
            }
            let first = self.scope.places.get(&value).copied().unwrap_or_default();
            let message = format!("`%{name}` is already defined");
            let diag =
                Diagnostic::new(Code::Redefinition, message).at(span).since(first, format!("%{name} is first defined"));
            return Err(self.report(diag.help("each value is defined once; rename this one")));
        }
        let value = match self.scope.reserved.get(name) {
            Some(&value) => {
                self.scope.values[value].ty = ty;
                value
            }
            None => self.scope.values.push(ValueData { name: name.to_string(), ty }),
        };
        self.scope.names.insert(name.to_string(), value);
        self.scope.places.insert(value, span);
        Ok(value)
    }

    fn check_stored(&mut self, value: Value, span: Span, ty: &Type) -> Parsed<()> {
        if self.scope.ty(value) == ty {
            return Ok(());
        }
        let data = &self.scope.values[value];
        let (name, want, got) = (data.name.clone(), self.print_type(&data.ty), self.print_type(ty));
        let message = format!("the store to `%{name}` has type {got}, but it has type {want}");
        Err(self.fail(Code::ResultType, span, message))
    }

    /// One statement. If it fails, its results are poisoned and parsing continues at the next line.
    pub(super) fn stmt(&mut self) -> Parsed<Stmt> {
        let comments = self.take_comments();
        let place = self.place();
        self.stmt_inner(comments).inspect_err(|_| self.recover(place))
    }

    fn stmt_inner(&mut self, comments: Vec<String>) -> Parsed<Stmt> {
        let start = self.span();
        let stated = self.stated()?;
        let accumulate = self.eat("+=");
        if !accumulate {
            self.expect("=")?;
        }
        let (op, operands) = self.application(&stated)?;
        let results = stated.into_iter().map(|(name, span, ty)| self.define(name, span, ty)).collect::<Parsed<_>>()?;
        Ok(Stmt { results, accumulate, op, operands, comments, span: self.since(start) })
    }

    /// Poisons the results of the skipped lines, up to the token where parsing continues.
    pub(super) fn recover(&mut self, from: usize) {
        if self.place() == from && !self.done() {
            self.bump();
        }
        self.skip_line();
        let taken = &self.tokens()[from..self.place()];
        let defined = taken.windows(2).filter(|pair| {
            let next = pair[1].text;
            pair[0].kind == Kind::Value && pair[1].kind == Kind::Punct && matches!(next, ":" | "," | "=" | "+=")
        });
        let names: Vec<String> = defined.map(|pair| pair[0].text.to_string()).collect();
        let unknown = names.into_iter().filter(|name| !self.scope.names.contains_key(name)).collect::<Vec<_>>();
        self.scope.poisoned.extend(unknown);
    }

    /// `%a: type, %b: type`
    pub(super) fn stated(&mut self) -> Parsed<Vec<Stated<'s>>> {
        let mut all = Vec::new();
        loop {
            let span = self.span();
            let name = self.take(Kind::Value, "a value")?;
            self.expect(":")?;
            all.push((name, span, self.ty()?));
            if !self.eat(",") {
                return Ok(all);
            }
        }
    }

    /// `op(%a, %b, name=attr)`
    pub(super) fn application(&mut self, stated: &[Stated<'s>]) -> Parsed<(Op, Vec<Value>)> {
        let written = self.written()?;
        let results: Vec<Type> = stated.iter().map(|(_, _, ty)| ty.clone()).collect();
        let op = self.resolve(&written, &results)?;
        Ok((op, written.operands))
    }

    fn written(&mut self) -> Parsed<Written<'s>> {
        let name_span = self.span();
        let name = self.take(Kind::Ident, "an op")?;
        self.expect("(")?;
        let (mut operands, mut attrs, mut attr_spans) = (Vec::new(), Vec::new(), Vec::new());
        let mut failed = false;
        self.list(")", |p| {
            let span = p.span();
            if p.at_kind(Kind::Value) {
                let operand = p.bump();
                // All undefined operands are reported, not only the first.
                match p.lookup(operand, span) {
                    Ok(value) => operands.push(value),
                    Err(_) => failed = true,
                }
                return Ok(());
            }
            let name = p.take(Kind::Ident, "`%value`, `name=attribute` or `)`")?;
            p.expect("=")?;
            attrs.push((name.to_string(), p.attr()?));
            attr_spans.push(span);
            Ok(())
        })?;
        if failed {
            return Err(Failed);
        }
        Ok(Written { name, name_span, span: self.since(name_span), operands, attrs, attr_spans })
    }

    fn resolve(&mut self, written: &Written<'_>, results: &[Type]) -> Parsed<Op> {
        let (name, span) = (written.name, written.name_span);
        let all = names().into_iter().chain(Collective::NAMES).chain(["reshard"]);
        let known: Vec<String> = all.map(str::to_string).collect();
        if !known.iter().any(|known| known == name) {
            return Err(self.unknown(Code::UnknownOp, span, format!("there is no op `{name}`"), name, &known));
        }
        if written.operands.is_empty() && !Iota::NAMES.contains(&name) {
            return Err(self.fail(Code::OperandCount, written.span, format!("`{name}` needs operands")));
        }
        let operands: Vec<&Type> = written.operands.iter().map(|&value| self.scope.ty(value)).collect();
        let mut attrs = Attrs(written.attrs.clone());
        let op = match Op::parse(name, &mut attrs, &Shapes { operands: &operands, results }) {
            Ok(op) => op,
            Err(why) => return Err(self.fail(Code::BadAttribute, written.span, format!("`{name}`: {why}"))),
        };
        if let Some((left, _)) = attrs.0.first() {
            let place = written.attrs.iter().position(|(name, _)| name == left).unwrap_or(0);
            let knows: Vec<&str> = op.attrs().into_iter().map(|(name, _)| name).collect();
            let knows = if knows.is_empty() { "none".to_string() } else { knows.join(", ") };
            let message = format!("`{name}` has no attribute `{left}`");
            let diag = Diagnostic::new(Code::UnknownAttribute, message).at(written.attr_spans[place]);
            return Err(self.report(diag.help(format!("attributes of `{name}`: {knows}"))));
        }
        Ok(op)
    }
}
