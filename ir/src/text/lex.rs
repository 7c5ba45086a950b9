//! Tokens. A comment belongs to the token that follows it; a comment at the end of a line, to the first token of the line.
//!
//! A text of brackets has a token for each byte, so a token is small, and there are at most [`TOKENS`] of them.

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::Span;
use crate::limits::TOKENS;
use std::collections::HashMap;

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `layer`
    Ident,
    /// `%x`, `%tok:0`
    Value,
    /// `@layer`
    At,
    /// `$tp`
    Coordinate,
    /// `12`
    Int,
    /// `0.5`, `1e-8`
    Float,
    /// A number with letters in it: `2F3`.
    Word,
    /// `"b s -> b"`
    Str,
    /// `->`, `{`
    Punct,
    /// After the last.
    End,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    /// Without sigil or quotes.
    pub(super) text: &'s str,
    /// It is the first token of its line.
    pub(super) first: bool,
    /// It begins in column 1.
    pub(super) flush: bool,
}

impl Token<'_> {
    /// Its span in the source, with sigil or quotes.
    pub(super) fn span(&self, source: &str) -> Span {
        let start = self.text.as_ptr().addr() - source.as_ptr().addr();
        let (before, behind) = match self.kind {
            Kind::Value | Kind::At | Kind::Coordinate => (1, 0),
            Kind::Str => (1, 1),
            _ => (0, 0),
        };
        Span { start: (start - before) as u32, end: (start + self.text.len() + behind) as u32 }
    }
}

/// The tokens of a source.
#[derive(Default)]
pub(super) struct Tokens<'s> {
    /// The last is of kind `End`.
    pub(super) all: Vec<Token<'s>>,
    /// The comment lines before a token, without `//`, by the token's number.
    pub(super) comments: HashMap<usize, Vec<String>>,
}

const LONG: [&str; 4] = ["->", "+=", "<=", ".."];
const SHORT: &str = "(){}[],;:=+-*/|?.";

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    tokens: Tokens<'s>,
    /// Comments without a token yet.
    comments: Vec<String>,
    /// The number of tokens and comments.
    count: usize,
    line_start: usize,
    /// The first token of the line, if it has one yet.
    first: Option<usize>,
    diags: Diagnostics,
}

/// The tokens of a source and its lexical errors. A source with too many tokens gives none.
pub(super) fn lex(source: &str) -> (Tokens<'_>, Diagnostics) {
    let (tokens, diags) = (Tokens::default(), Diagnostics::default());
    let mut lexer = Lexer { source, at: 0, tokens, comments: Vec::new(), count: 0, line_start: 0, first: None, diags };
    while lexer.at < source.len() && lexer.count < TOKENS {
        lexer.step();
    }
    if lexer.at < source.len() {
        let message = format!("a text has at most {TOKENS} tokens and comments");
        lexer.diags = Diagnostic::new(Code::TooLarge, message)
            .at(Span { start: lexer.at as u32, end: lexer.at as u32 + 1 })
            .into();
        lexer.tokens = Tokens::default();
    }
    lexer.at = source.len();
    lexer.push(Kind::End, source.len(), &source[source.len()..]);
    (lexer.tokens, lexer.diags)
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn step(&mut self) {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else { return };
        match c {
            '\n' => {
                self.at += 1;
                self.line_start = self.at;
                self.first = None;
            }
            _ if c.is_whitespace() => self.at += c.len_utf8(),
            _ if rest.starts_with("//") => self.comment(),
            '"' => self.string(),
            '%' | '@' | '$' => self.sigil(c),
            _ if c.is_ascii_alphabetic() || c == '_' => {
                let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
                self.take(Kind::Ident, length);
            }
            _ if c.is_ascii_digit() => self.number(),
            _ => self.punct(c),
        }
    }

    /// Takes `length` bytes as a token.
    fn take(&mut self, kind: Kind, length: usize) {
        let text = &self.rest()[..length];
        self.push(kind, self.at + length, text);
    }

    fn push(&mut self, kind: Kind, end: usize, text: &'s str) {
        let token = Token { kind, text, first: self.first.is_none(), flush: self.at == self.line_start };
        let number = self.tokens.all.len();
        self.first.get_or_insert(number);
        if !self.comments.is_empty() {
            self.tokens.comments.insert(number, std::mem::take(&mut self.comments));
        }
        self.tokens.all.push(token);
        self.count += 1;
        self.at = end;
    }

    fn comment(&mut self) {
        let line = self.rest().lines().next().unwrap_or("");
        self.at += line.len();
        let text = line.trim_start_matches('/').trim().to_string();
        match self.first {
            Some(first) => self.tokens.comments.entry(first).or_default().push(text),
            None => self.comments.push(text),
        }
        // A comment counts as several tokens, since it takes as much memory.
        self.count += 4;
    }

    fn string(&mut self) {
        let line = self.rest().lines().next().unwrap_or("");
        match line[1..].find('"') {
            Some(length) => self.push(Kind::Str, self.at + length + 2, &line[1..1 + length]),
            None => {
                let message = "this string is not closed on its line";
                self.wrong(Code::UnterminatedString, line.len(), message.to_string());
            }
        }
    }

    fn sigil(&mut self, sigil: char) {
        let (kind, extra) = match sigil {
            '%' => (Kind::Value, "."),
            '@' => (Kind::At, ".-"),
            _ => (Kind::Coordinate, ""),
        };
        let name = &self.rest()[1..];
        let bytes = name.as_bytes();
        let mut length = 0;
        while let Some(&byte) = bytes.get(length) {
            let next = bytes.get(length + 1).copied().unwrap_or(b' ');
            let is_inside = extra.contains(byte as char) && is_word(next as char);
            let is_numbered = kind == Kind::Value && byte == b':' && next.is_ascii_digit();
            if !is_word(byte as char) && !is_inside && !is_numbered {
                break;
            }
            length += 1;
        }
        if length == 0 {
            return self.wrong(Code::UnexpectedCharacter, 1, format!("`{sigil}` without a name"));
        }
        self.push(kind, self.at + 1 + length, &name[..length]);
    }

    fn number(&mut self) {
        let bytes = self.rest().as_bytes();
        let mut length = digits(bytes);
        let mut kind = Kind::Int;
        if bytes.get(length) == Some(&b'.') && digits(&bytes[length + 1..]) > 0 {
            length += 1 + digits(&bytes[length + 1..]);
            kind = Kind::Float;
        }
        if bytes.get(length) == Some(&b'e') {
            let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
            let exponent = digits(&bytes[(length + 1 + sign).min(bytes.len())..]);
            if exponent > 0 {
                length += 1 + sign + exponent;
                kind = Kind::Float;
            }
        }
        let tail = bytes[length..].iter().take_while(|&&b| is_word(b as char)).count();
        if tail > 0 {
            kind = Kind::Word;
        }
        self.take(kind, length + tail);
    }

    fn punct(&mut self, c: char) {
        let rest = self.rest();
        if let Some(long) = LONG.iter().find(|long| rest.starts_with(**long)) {
            self.take(Kind::Punct, long.len());
        } else if SHORT.contains(c) {
            self.take(Kind::Punct, 1);
        } else {
            self.wrong(Code::UnexpectedCharacter, c.len_utf8(), format!("unexpected character `{c}`"));
        }
    }

    fn wrong(&mut self, code: Code, length: usize, message: String) {
        let span = Span { start: self.at as u32, end: (self.at + length) as u32 };
        self.diags.push(Diagnostic::new(code, message).at(span));
        self.at += length;
    }
}

/// The number of digits that some text begins with.
fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(Kind, &str)> {
        lex(source).0.all.iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn names_numbers_and_actions_are_told_apart() {
        let tokens = kinds("%x.d: 0..32 2F3:1 1e-8 @zb-h1 %tok:0 %layer[3].w1");
        let want = [
            (Kind::Value, "x.d"),
            (Kind::Punct, ":"),
            (Kind::Int, "0"),
            (Kind::Punct, ".."),
            (Kind::Int, "32"),
            (Kind::Word, "2F3"),
            (Kind::Punct, ":"),
            (Kind::Int, "1"),
            (Kind::Float, "1e-8"),
            (Kind::At, "zb-h1"),
            (Kind::Value, "tok:0"),
            (Kind::Value, "layer"),
            (Kind::Punct, "["),
            (Kind::Int, "3"),
            (Kind::Punct, "]"),
            (Kind::Punct, "."),
            (Kind::Ident, "w1"),
            (Kind::End, ""),
        ];
        assert_eq!(tokens, want);
    }

    #[test]
    fn a_comment_belongs_to_the_line_it_stands_on_or_before() {
        let (tokens, _) = lex("a b // one\n// two\nc");
        assert_eq!(tokens.comments, HashMap::from([(0, vec!["one".to_string()]), (2, vec!["two".to_string()])]));
    }

    #[test]
    fn a_token_knows_its_place() {
        let source = "%x = f(\"a b\", @g, $tp) -> 12 ";
        let (tokens, _) = lex(source);
        let spans = tokens.all.iter().map(|token| token.span(source));
        let texts: Vec<&str> = spans.map(|span| &source[span.start as usize..span.end as usize]).collect();
        assert_eq!(texts, ["%x", "=", "f", "(", "\"a b\"", ",", "@g", ",", "$tp", ")", "->", "12", ""]);
    }

    #[test]
    fn a_text_of_too_many_tokens_is_refused_at_once() {
        let source = "[".repeat(TOKENS + 1);
        let (tokens, diags) = lex(&source);
        assert_eq!((tokens.all.len(), diags.0.len(), diags.0[0].code), (1, 1, Code::TooLarge));
        assert!(size_of::<Token<'_>>() <= 24, "{}", size_of::<Token<'_>>());
    }
}
