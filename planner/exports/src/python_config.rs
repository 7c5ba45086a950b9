//! The values that a Python file of torchtitan gives to sections of a configuration: keyword arguments such as
//! `TrainingConfig(seq_len=8192)` and assignments such as `config.training.seq_len = 8192`. Nothing is executed.

use crate::flag_error::FlagError;
use serde_json::Value;
use std::collections::BTreeMap;

/// Classes of sections, and the sections.
const SECTIONS: [(&str, &str); 12] = [
    ("ParallelismConfig", "parallelism"),
    ("TrainingConfig", "training"),
    ("CompileConfig", "compile"),
    ("FullAC", "activation_checkpoint"),
    ("SelectiveAC", "activation_checkpoint"),
    ("MemoryBudgetAC", "activation_checkpoint"),
    ("OptimizersContainer", "optimizer"),
    ("CommConfig", "comm"),
    ("DebugConfig", "debug"),
    ("OverrideConfig", "override"),
    ("model_registry", "model_spec"),
    ("Float8LinearConverter", "float8"),
];

/// Calls of functions within functions that are followed.
const DEEPEST: usize = 16;

/// A value that is no literal, as its text.
pub(crate) const COMPUTED: &str = "computed: ";

#[derive(Clone, PartialEq, Debug)]
enum Token {
    /// A name, with the dots within it.
    Name(String),
    Literal(Value),
    Sign(char),
    /// The end of the file within a text.
    Unclosed,
}

impl Token {
    /// Brackets that it opens; negative if it closes one.
    fn opens(&self) -> i64 {
        match self {
            Token::Sign('(' | '[' | '{') => 1,
            Token::Sign(')' | ']' | '}') => -1,
            _ => 0,
        }
    }
}

/// The values by section and name that a function sets; without its name, the only function that sets any.
///
/// # Errors
/// The file has no such function, several that set values, or one that ends early.
pub(crate) fn values(text: &str, function: Option<&str>) -> Result<BTreeMap<String, Value>, FlagError> {
    let functions = functions(text);
    functions.iter().try_for_each(|(name, tokens)| check(name, tokens))?;
    if let Some(name) = function {
        let known = functions.iter().any(|(known, _)| known == name);
        return match known {
            true => Ok(values_of(&functions, name)),
            false => Err(format!("it has no function `{name}`{}", named(&functions)).into()),
        };
    }
    let setting = functions.iter().map(|(name, _)| values_of(&functions, name));
    let mut setting = setting.filter(|values| !values.is_empty());
    match (setting.next(), setting.next()) {
        (Some(values), None) => Ok(values),
        (None, _) => Err("it sets no field of parallelism or training".into()),
        (Some(_), Some(_)) => {
            Err(format!("several functions make a configuration: name one as FILE.py:NAME{}", named(&functions)).into())
        }
    }
}

/// Checks that a function is whole: its brackets are closed, its statements about a configuration set something, and it returns what it has
/// set.
///
/// # Errors
/// It is not.
fn check(name: &str, tokens: &[Token]) -> Result<(), FlagError> {
    let place = if name.is_empty() { "the file".to_string() } else { format!("the function {name}") };
    let depths = tokens.iter().scan(0, |depth, token| {
        *depth += token.opens();
        Some(*depth)
    });
    if depths.last().is_some_and(|depth: i64| depth > 0) || tokens.contains(&Token::Unclosed) {
        return Err(FlagError::Text(format!("{place} ends within brackets or a text")));
    }
    let mut sets = false;
    for statement in tokens.split(|token| *token == Token::Sign('\n')) {
        match statement {
            [Token::Name(field)] | [Token::Name(field), Token::Sign('=')] if field.starts_with(ARGUMENT) => {
                return Err(FlagError::Text(format!("{place} sets no value of {field}: it ends early")));
            }
            [Token::Name(field), Token::Sign('='), ..] => sets |= field.starts_with(ARGUMENT),
            _ => {}
        }
    }
    let returns = tokens.iter().any(|token| matches!(token, Token::Name(word) if word == "return"));
    if sets && !returns && !name.is_empty() {
        return Err(FlagError::Text(format!("{place} returns nothing: it ends early")));
    }
    Ok(())
}

/// The beginning of fields of a configuration that a function is given.
const ARGUMENT: &str = "config.";

fn named(functions: &[(String, Vec<Token>)]) -> String {
    let names: Vec<&str> =
        functions.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty()).take(8).collect();
    if names.is_empty() { String::new() } else { format!(", such as {}", names.join(", ")) }
}

/// The functions of a file with their tokens; the first one, without a name, is what lies outside.
fn functions(text: &str) -> Vec<(String, Vec<Token>)> {
    let mut functions: Vec<(String, Vec<Token>)> = vec![(String::new(), Vec::new())];
    let mut part = String::new();
    for line in text.lines() {
        let name = line.strip_prefix("def ").and_then(|rest| rest.split('(').next());
        let is_outside = line.starts_with(|first: char| first.is_alphabetic() || first == '@');
        if name.is_some() || (is_outside && !functions.last().is_some_and(|(name, _)| name.is_empty())) {
            functions.last_mut().expect("one is there").1.extend(tokens(&part));
            part.clear();
            functions.push((name.unwrap_or_default().trim().to_string(), Vec::new()));
        }
        // The head of a function has defaults of its arguments.
        if name.is_none() {
            part.push_str(line);
            part.push('\n');
        }
    }
    functions.last_mut().expect("one is there").1.extend(tokens(&part));
    functions
}

fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if first == '"' || first == '\'' {
            let closed = string(rest, first);
            tokens.push(closed.as_ref().map_or(Token::Unclosed, |(value, _)| Token::Literal(value.clone().into())));
            rest = closed.map_or("", |(_, after)| after);
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c)).unwrap_or(rest.len());
            let digits = rest[..end].replace('_', "");
            let value = digits.parse::<u64>().map(Value::from).or_else(|_| digits.parse::<f64>().map(Value::from));
            tokens.push(value.map_or_else(|_| Token::Name(digits), Token::Literal));
            rest = &rest[end..];
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && !"._".contains(c)).unwrap_or(rest.len());
            tokens.push(match &rest[..end] {
                "True" => Token::Literal(true.into()),
                "False" => Token::Literal(false.into()),
                "None" => Token::Literal(Value::Null),
                name => Token::Name(name.to_string()),
            });
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            } else if first == '\n' {
                tokens.push(Token::Sign('\n'));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

/// The string that a text begins with, and what is behind it; `None` if it has no end.
fn string(text: &str, quote: char) -> Option<(String, &str)> {
    let long: String = [quote; 3].iter().collect();
    if let Some(inner) = text.strip_prefix(&long) {
        return inner.split_once(&long).map(|(value, after)| (value.to_string(), after));
    }
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ if character == quote => return Some((value, &text[at + quote.len_utf8()..])),
            _ => value.push(character),
        }
    }
    None
}

/// Values that a function sets, itself and by the functions that it calls.
fn values_of(functions: &[(String, Vec<Token>)], name: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    collect(functions, name, DEEPEST, &mut found);
    found
}

/// Collects what a function sets, after what the functions set that it calls.
fn collect(functions: &[(String, Vec<Token>)], name: &str, depth: usize, found: &mut BTreeMap<String, Value>) {
    for tokens in functions.iter().filter(|(known, _)| known == name).map(|(_, tokens)| tokens) {
        // The sections of the calls that are open.
        let mut open: Vec<Option<&str>> = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            let next = tokens.get(at + 1);
            match token {
                Token::Sign('(' | '[' | '{') => {
                    let called = at.checked_sub(1).and_then(|before| tokens.get(before));
                    open.push(match called {
                        Some(Token::Name(class)) => section_of(class),
                        _ => None,
                    });
                }
                Token::Sign(')' | ']' | '}') => drop(open.pop()),
                Token::Name(called) if next == Some(&Token::Sign('(')) && depth > 0 && called != name => {
                    collect(functions, called, depth - 1, found);
                }
                Token::Name(field)
                    if next == Some(&Token::Sign('=')) && tokens.get(at + 2) != Some(&Token::Sign('=')) =>
                {
                    if let Some(key) = key_of(field, open.last().copied().flatten()) {
                        found.insert(key, value(&tokens[at + 2..]));
                    }
                }
                _ => {}
            }
        }
    }
}

fn section_of(class: &str) -> Option<&'static str> {
    let class = class.rsplit('.').find(|part| *part != "Config").unwrap_or(class);
    SECTIONS.iter().find(|(known, section)| *known == class || *section == class).map(|(_, section)| *section)
}

/// The section and the name of a field that is set: in a call of the section's class, or by a path such as `config.training.seq_len`.
fn key_of(field: &str, section: Option<&str>) -> Option<String> {
    let parts: Vec<&str> = field.split('.').collect();
    match (parts.as_slice(), section) {
        (["activation_checkpoint"], None) | ([.., "activation_checkpoint"], _) => Some("activation_checkpoint".into()),
        ([name], Some(section)) => Some(format!("{section}.{name}")),
        ([.., section, name], _) if SECTIONS.iter().any(|(_, known)| known == section) => {
            Some(format!("{section}.{name}"))
        }
        // Sections of one's own are told, and misspelt ones refused.
        (["config", _, ..], None) => Some(parts[1..].join(".")),
        _ => None,
    }
}

/// The value at the beginning of some tokens: a literal, a list, or the text of something else.
fn value(tokens: &[Token]) -> Value {
    match tokens {
        [Token::Sign('-'), Token::Literal(Value::Number(number)), ..] => Value::from(-number.as_f64().unwrap_or(0.0)),
        [Token::Literal(value), ..] => value.clone(),
        [Token::Sign('['), ..] => list(tokens).0,
        [Token::Name(name), ..] => Value::String(format!("{COMPUTED}{name}")),
        _ => Value::String(COMPUTED.to_string()),
    }
}

/// The list at the beginning of some tokens, and how many tokens it has.
fn list(tokens: &[Token]) -> (Value, usize) {
    let (mut items, mut at) = (Vec::new(), 1);
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Sign(']') => return (Value::Array(items), at + 1),
            Token::Sign('[') => {
                let (inner, length) = list(&tokens[at..]);
                items.push(inner);
                at += length;
                continue;
            }
            Token::Literal(value) => items.push(value.clone()),
            Token::Name(name) => items.push(Value::String(format!("{COMPUTED}{name}"))),
            Token::Sign(_) | Token::Unclosed => {}
        }
        at += 1;
    }
    (Value::Array(items), at)
}
