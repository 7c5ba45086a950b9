//! Types, axes, attributes and rank expressions.

use super::cursor::{Parsed, Parser};
use super::lex::Kind;
use crate::catalogue::Code;
use crate::diag::Diagnostic;
use crate::expr::{BinaryExpr, Expr};
use crate::graph::Span;
use crate::ids::Value;
use crate::limits;
use crate::mesh::Axes;
use crate::ops::Attr;
use crate::types::{DType, Dim, Partial, PartialKind, Space, Type};

impl Parser<'_> {
    /// `bf16[b{dp}, s, h]/{dp}+{tp}@host`
    pub(super) fn ty(&mut self) -> Parsed<Type> {
        let dtype = self.dtype()?;
        self.expect("[")?;
        let dims = self.list("]", Parser::dim)?;
        let storage = if self.eat("/") { self.closed_axes()? } else { Axes::none() };
        let kind = match () {
            () if self.eat("+") => Some(PartialKind::Sum),
            () if self.at("max") && self.ahead_is(1, "{") => {
                self.bump();
                Some(PartialKind::Max)
            }
            () => None,
        };
        let partial = match kind {
            Some(kind) => Some(Partial { kind, axes: self.closed_axes()?.sorted() }),
            None => None,
        };
        Ok(Type { dtype, dims, storage, partial, space: self.space()? })
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let span = self.span();
        let name = self.take(Kind::Ident, "a type")?;
        match DType::from_name(name) {
            Some(dtype) => Ok(dtype),
            None => {
                let known: Vec<String> = DType::ALL.iter().map(|(_, name)| name.to_string()).collect();
                Err(self.unknown(Code::UnknownType, span, format!("there is no element type `{name}`"), name, &known))
            }
        }
    }

    fn space(&mut self) -> Parsed<Space> {
        if !self.at_kind(Kind::At) {
            return Ok(Space::Device);
        }
        let span = self.span();
        match self.bump() {
            "host" => Ok(Space::Host),
            name => Err(self.fail(
                Code::UnexpectedToken,
                span,
                format!("unknown memory `@{name}`; the only one is `@host`"),
            )),
        }
    }

    fn dim(&mut self) -> Parsed<Dim> {
        let start = self.span();
        let mut dim = if self.at_kind(Kind::Int) { Dim::sized(self.int("a size")?) } else { self.named_dim()? };
        let bound = if self.eat("<=") { Some((self.span(), self.int::<u64>("a bound")?)) } else { None };
        if self.eat("(") {
            dim.count = Some(self.count()?);
        }
        if self.at("{") {
            (dim.axes, dim.open) = self.axes()?;
        }
        if let Some((span, bound)) = bound {
            self.check_bound(&dim, span, bound)?;
        }
        if dim.size == 0 {
            return Err(self.fail(Code::BadNumber, start, "a dim has at least one element"));
        }
        Ok(dim)
    }

    fn named_dim(&mut self) -> Parsed<Dim> {
        let span = self.span();
        let name = self.take(Kind::Ident, "a dim")?;
        match self.known.dims.get(name).copied() {
            Some(id) => Ok(Dim::named(&self.model.dims, id)),
            None => {
                let known: Vec<String> = self.model.dims.values().map(|dim| dim.name.clone()).collect();
                let message = format!("there is no dim `{name}` in `dims`");
                Err(self.unknown(Code::UnknownDim, span, message, name, &known))
            }
        }
    }

    /// `(%n)`: the value of a dynamic size.
    fn count(&mut self) -> Parsed<Value> {
        let span = self.span();
        let name = self.take(Kind::Value, "the value with the counts")?;
        self.expect(")")?;
        self.lookup(name, span)
    }

    /// Checks a stated bound: that of the full dim (dynamic) or of its shards.
    fn check_bound(&mut self, dim: &Dim, span: Span, bound: u64) -> Parsed<()> {
        let local = self.model.mesh.bound(dim.size, &dim.axes);
        if bound == local || (dim.count.is_some() && bound == dim.size) {
            return Ok(());
        }
        Err(self.fail(
            Code::WrongBound,
            span,
            format!("{} elements with this sharding have the bound {local}", dim.size),
        ))
    }

    /// `{dp,tp}`, `{dp,?}`: the axes, and true if the dim is open.
    pub(super) fn axes(&mut self) -> Parsed<(Axes, bool)> {
        self.expect("{")?;
        let (mut axes, mut open) = (Axes::none(), false);
        self.list("}", |p| {
            if p.eat("?") {
                open = true;
                return Ok(());
            }
            let span = p.span();
            let name = p.take(Kind::Ident, "an axis")?;
            let found = p.axes_named(name, span)?;
            if !found.is_disjoint(&axes) {
                return Err(p.fail(Code::AxisTwice, span, format!("`{name}` appears twice in these braces")));
            }
            axes = axes.union(&found);
            Ok(())
        })?;
        Ok((axes, open))
    }

    fn closed_axes(&mut self) -> Parsed<Axes> {
        let start = self.span();
        let (axes, open) = self.axes()?;
        if open || axes.is_empty() {
            let span = self.since(start);
            return Err(self.fail(Code::UnexpectedToken, span, "`?` is not allowed here; name the axes"));
        }
        Ok(axes)
    }

    /// The axes of a name: an axis or a group.
    pub(super) fn axes_named(&mut self, name: &str, span: Span) -> Parsed<Axes> {
        if let Some(axes) = self.model.mesh.lookup(name) {
            return Ok(axes);
        }
        let mesh = &self.model.mesh;
        let axes = mesh.axes.values().map(|axis| axis.name.clone());
        let known: Vec<String> = axes.chain(mesh.groups.iter().map(|group| group.name.clone())).collect();
        let message = match self.model.has_mesh {
            true => format!("the mesh has no axis `{name}`"),
            false => format!("there is no axis `{name}`: the file has no `mesh`"),
        };
        if !self.model.has_mesh {
            let help = format!("begin the file with: mesh @m = [{name}=2]");
            return Err(self.report(Diagnostic::new(Code::UnknownAxis, message).at(span).help(help)));
        }
        Err(self.unknown(Code::UnknownAxis, span, message, name, &known))
    }

    /// The value of an attribute.
    pub(super) fn attr(&mut self) -> Parsed<Attr> {
        let word = self.at_kind(Kind::Ident) && !self.ahead_is(1, "(");
        match self.ahead(0).map(|token| token.kind) {
            Some(Kind::Str) => Ok(Attr::Str(self.bump().to_string())),
            Some(Kind::Float) => Ok(Attr::Float(self.float("a number")?)),
            Some(Kind::Punct) if self.at("{") => Ok(Attr::Axes(self.axes()?.0)),
            Some(Kind::Punct) if self.eat("[") => Ok(Attr::List(self.list("]", |p| Ok(p.axes()?.0))?)),
            Some(Kind::Punct) if self.at("-") && self.ahead(1).is_some_and(|token| token.kind == Kind::Float) => {
                Ok(Attr::Float(self.float("a number")?))
            }
            Some(_) if word => Ok(Attr::Word(self.bump().to_string())),
            _ => Ok(Attr::Expr(self.expr()?)),
        }
    }

    /// A rank expression.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.operators = 0;
        self.sum()
    }

    /// A sum of terms.
    fn sum(&mut self) -> Parsed<Expr> {
        self.chain(&[("+", BinaryExpr::Add), ("-", BinaryExpr::Sub)], |p| {
            let factors = [("*", BinaryExpr::Mul), ("/", BinaryExpr::Div), ("mod", BinaryExpr::Mod)];
            p.chain(&factors, Parser::factor)
        })
    }

    /// Left to right over operators of one rank.
    fn chain(&mut self, ops: &[(&str, BinaryExpr)], mut one: impl FnMut(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let mut left = one(self)?;
        while let Some(&(_, op)) = ops.iter().find(|(text, _)| self.at(text)) {
            self.operator()?;
            left = Expr::binary(op, left, one(self)?);
        }
        Ok(left)
    }

    /// Takes an operator or a parenthesis, if the expression may have one more.
    fn operator(&mut self) -> Parsed<()> {
        let span = self.span();
        self.operators += 1;
        if self.operators > limits::OPERATORS {
            let message = format!("an expression has at most {} operators and parentheses", limits::OPERATORS);
            return Err(self.fail(Code::LongExpression, span, message));
        }
        self.bump();
        Ok(())
    }

    fn factor(&mut self) -> Parsed<Expr> {
        let span = self.span();
        if self.at_kind(Kind::Coordinate) {
            let name = self.bump();
            return match self.axes_named(name, span)?.as_slice() {
                [axis] => Ok(Expr::Coordinate(*axis)),
                _ => Err(self.fail(Code::UnknownAxis, span, format!("`{name}` is a group; name one axis"))),
            };
        }
        for (name, op) in [("min", BinaryExpr::Min), ("max", BinaryExpr::Max)] {
            if self.at(name) {
                self.operator()?;
                self.expect("(")?;
                let pair = self.list(")", Parser::sum)?;
                return match <[Expr; 2]>::try_from(pair) {
                    Ok([a, b]) => Ok(Expr::binary(op, a, b)),
                    Err(_) => Err(self.fail(Code::UnexpectedToken, span, format!("`{name}` takes two numbers"))),
                };
            }
        }
        if self.at("(") {
            self.operator()?;
            let inner = self.sum()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let sign = if self.eat("-") { -1 } else { 1 };
        Ok(Expr::Int(sign * self.int::<i64>("a number, `$axis` or `(`")?))
    }
}
