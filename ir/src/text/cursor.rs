//! Token cursor of the parser: lookahead, consuming, and diagnostics for unexpected tokens.

use super::lex::{Kind, Token, Tokens, lex};
use super::retired::renamed;
use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics, nearest};
use crate::graph::{Model, Span};
use crate::ids::{BlockId, DimId, ModelValue, Value};
use crate::types::Type;
use cranelift_entity::PrimaryMap;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Error: parsing failed; the diagnostics already have the reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed;

/// The result of a parsing function.
pub(super) type Parsed<T> = Result<T, Failed>;

/// The values of the current block or body.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) values: PrimaryMap<Value, crate::graph::ValueData>,
    pub(super) names: HashMap<String, Value>,
    /// Values that exist under a name before it is defined: those of the block that a body comes from.
    pub(super) reserved: HashMap<String, Value>,
    /// The definition of each value.
    pub(super) places: HashMap<Value, Span>,
    /// Names whose statement failed; their readers are not reported.
    pub(super) poisoned: HashSet<String>,
    /// Arguments that a statement may store into, once.
    pub(super) storable: HashSet<Value>,
}

impl Scope {
    /// The type of a value.
    pub(super) fn ty(&self, value: Value) -> &Type {
        &self.values[value].ty
    }
}

/// The names read so far; a search of the model for each would take quadratic time.
#[derive(Default)]
pub(super) struct NameIndex {
    pub(super) dims: HashMap<String, DimId>,
    pub(super) blocks: HashMap<String, BlockId>,
    pub(super) values: HashMap<String, ModelValue>,
    /// Names and fields.
    pub(super) params: HashSet<(String, Option<String>)>,
}

/// A parser over one file.
pub(super) struct Parser<'s> {
    source: &'s str,
    tokens: Tokens<'s>,
    at: usize,
    /// The end of the current item.
    end: usize,
    pub(super) diags: Diagnostics,
    /// The names read so far.
    pub(super) model: Model,
    pub(super) known: NameIndex,
    pub(super) scope: Scope,
    /// Comments in positions without an owner: they move to the head of the file.
    pub(super) loose_comments: Vec<String>,
    /// Names of blocks and bodies whose text failed.
    pub(super) failed_names: HashSet<String>,
    /// The number of operators and parentheses of the current expression.
    pub(super) operators: u32,
}

impl<'s> Parser<'s> {
    pub(super) fn new(source: &'s str) -> Parser<'s> {
        let (tokens, diags) = lex(source);
        let end = tokens.all.len() - 1;
        Parser {
            source,
            tokens,
            at: 0,
            end,
            diags,
            model: Model::default(),
            known: NameIndex::default(),
            scope: Scope::default(),
            loose_comments: Vec::new(),
            failed_names: HashSet::new(),
            operators: 0,
        }
    }

    /// All tokens, the last of kind `End`.
    pub(super) fn tokens(&self) -> &[Token<'s>] {
        &self.tokens.all
    }

    /// The place of a token.
    pub(super) fn span_of(&self, token: usize) -> Span {
        self.tokens.all[token].span(self.source)
    }

    /// The comments after the last item.
    pub(super) fn trailing_comments(&mut self) -> Vec<String> {
        self.tokens.comments.remove(&(self.tokens.all.len() - 1)).unwrap_or_default()
    }

    /// Restricts the parser to some tokens.
    pub(super) fn enter(&mut self, range: Range<usize>) {
        (self.at, self.end) = (range.start, range.end);
    }

    /// The index of the current token.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// True if no tokens are left.
    pub(super) fn done(&self) -> bool {
        self.at >= self.end
    }

    /// The current token and those after it.
    pub(super) fn ahead(&self, by: usize) -> Option<&Token<'s>> {
        self.tokens.all.get(self.at + by).filter(|_| self.at + by < self.end)
    }

    /// The span of the current token, or the end of the last.
    pub(super) fn span(&self) -> Span {
        match self.ahead(0) {
            Some(token) => token.span(self.source),
            None if self.at > 0 => {
                let end = self.span_of(self.at - 1).end;
                Span { start: end.saturating_sub(1), end }
            }
            None => Span::default(),
        }
    }

    /// From a place to the end of the last token taken.
    pub(super) fn since(&self, start: Span) -> Span {
        let end = self.span_of(self.at.saturating_sub(1)).end;
        Span { start: start.start, end: end.max(start.end) }
    }

    /// Consumes the current token; its comments, unless already taken, become loose.
    pub(super) fn bump(&mut self) -> &'s str {
        let comments = self.take_comments();
        self.loose_comments.extend(comments);
        let text = self.tokens.all[self.at].text;
        self.at += 1;
        text
    }

    /// The comments before the current token.
    pub(super) fn take_comments(&mut self) -> Vec<String> {
        if self.done() || self.tokens.comments.is_empty() {
            return Vec::new();
        }
        self.tokens.comments.remove(&self.at).unwrap_or_default()
    }

    /// True if the current token is of this kind.
    pub(super) fn at_kind(&self, kind: Kind) -> bool {
        self.ahead(0).is_some_and(|token| token.kind == kind)
    }

    /// True if the current token is this punctuation or word.
    pub(super) fn at(&self, text: &str) -> bool {
        self.ahead_is(0, text)
    }

    /// True if the token at this distance is this punctuation or word.
    pub(super) fn ahead_is(&self, by: usize, text: &str) -> bool {
        self.ahead(by).is_some_and(|token| matches!(token.kind, Kind::Punct | Kind::Ident) && token.text == text)
    }

    /// Consumes the punctuation or word if it is the current token.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.at(text);
        if found {
            self.bump();
        }
        found
    }

    /// Consumes the punctuation or word, which must be the current token.
    pub(super) fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.eat(text) { Ok(()) } else { Err(self.expected(&format!("`{text}`"))) }
    }

    /// Consumes a token, which must be of this kind.
    pub(super) fn take(&mut self, kind: Kind, what: &str) -> Parsed<&'s str> {
        if self.at_kind(kind) { Ok(self.bump()) } else { Err(self.expected(what)) }
    }

    /// Consumes an integer.
    pub(super) fn int<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let span = self.span();
        let text = self.take(Kind::Int, what)?;
        text.parse().map_err(|_| self.fail(Code::BadNumber, span, format!("`{text}` does not fit {what}")))
    }

    /// Consumes an integer or float.
    pub(super) fn float(&mut self, what: &str) -> Parsed<f64> {
        let sign = if self.eat("-") { -1.0 } else { 1.0 };
        if !self.at_kind(Kind::Int) && !self.at_kind(Kind::Float) {
            return Err(self.expected(what));
        }
        let (span, text) = (self.span(), self.bump());
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(sign * number),
            _ => Err(self.fail(Code::BadNumber, span, format!("`{text}` does not fit {what}"))),
        }
    }

    /// `word=int`.
    pub(super) fn field<T: std::str::FromStr>(&mut self, word: &str) -> Parsed<T> {
        self.expect(word)?;
        self.expect("=")?;
        self.int("an integer")
    }

    /// A comma-separated list up to and including a closing mark; a trailing comma is allowed.
    pub(super) fn list<T>(&mut self, close: &str, mut one: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut all = Vec::new();
        loop {
            if self.eat(close) {
                return Ok(all);
            }
            all.push(one(self)?);
            if !self.at(close) && !self.eat(",") {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
    }

    /// A comma-separated list of values, possibly empty: `%a, %b`.
    pub(super) fn values(&mut self) -> Parsed<Vec<(&'s str, Span)>> {
        let mut all = Vec::new();
        while self.at_kind(Kind::Value) {
            let span = self.span();
            all.push((self.bump(), span));
            if !self.eat(",") {
                break;
            }
        }
        Ok(all)
    }

    /// Skips to the next line of the item that begins a statement or closes the braces.
    pub(super) fn skip_line(&mut self) {
        while let Some(token) = self.ahead(0) {
            let begins = matches!(token.kind, Kind::Value | Kind::Ident) || token.text == "}";
            if token.first && begins {
                return;
            }
            self.bump();
        }
    }

    /// Reports and fails.
    pub(super) fn fail(&mut self, code: Code, span: Span, message: impl Into<String>) -> Failed {
        self.report(Diagnostic::new(code, message).at(span))
    }

    /// Reports and fails.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> Failed {
        self.diags.push(diagnostic);
        Failed
    }

    /// Reports an unexpected token.
    pub(super) fn expected(&mut self, what: &str) -> Failed {
        let found = match self.ahead(0) {
            Some(token) if token.kind == Kind::Str => "a string".to_string(),
            Some(token) => format!("`{}{}`", sigil(token.kind), token.text),
            None => "the end".to_string(),
        };
        let mut diagnostic =
            Diagnostic::new(Code::UnexpectedToken, format!("expected {what}, found {found}")).at(self.span());
        if let Some(help) = self.ahead(0).and_then(|token| renamed(token.text)) {
            diagnostic = diagnostic.help(help);
        }
        self.report(diagnostic)
    }

    /// Reports an unknown name, with the nearest known name or all known names.
    pub(super) fn unknown(&mut self, code: Code, span: Span, message: String, name: &str, known: &[String]) -> Failed {
        // Diagnostics that are not shown skip the comparison with a long list of names.
        if self.diags.is_full() {
            return self.fail(code, span, message);
        }
        let help = renamed(name).unwrap_or_else(|| match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "none are defined".to_string(),
            None => format!("valid names: {}", known.join(", ")),
        });
        self.report(Diagnostic::new(code, message).at(span).help(help))
    }
}

fn sigil(kind: Kind) -> &'static str {
    match kind {
        Kind::Value => "%",
        Kind::At => "@",
        Kind::Coordinate => "$",
        _ => "",
    }
}
