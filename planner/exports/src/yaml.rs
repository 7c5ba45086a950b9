//! YAML of bounded size: a few lines of aliases stand for more nodes than memory holds, and nested lists for more calls than a stack.

use crate::flag_error::FlagError;
use std::collections::HashMap;
use std::fmt;
use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

/// Most nodes of a text, aliases expanded. Files of frameworks have hundreds.
const NODES: u64 = 1 << 17;

/// Most lists and sections around a node.
const DEPTH: usize = 64;

/// The first document of a text.
///
/// # Errors
/// The text is no YAML, is empty, or has more documents, nodes or levels than a configuration.
pub(crate) fn load(text: &str) -> Result<Yaml, FlagError> {
    check(text)?;
    let mut documents = YamlLoader::load_from_str(text).map_err(|why| no_yaml(&why))?;
    match documents.len() {
        0 => Err(FlagError::Text("it is empty".to_string())),
        1 => Ok(documents.remove(0)),
        count => Err(FlagError::Text(format!("it has {count} documents: a configuration is one"))),
    }
}

/// A value that a file states as none.
pub(crate) const NOTHING: &str = "null";

/// A value as a table of keys has it; none of a list or a section.
pub(crate) fn text_of(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) | Yaml::Real(text) => Some(text.clone()),
        Yaml::Integer(number) => Some(number.to_string()),
        Yaml::Boolean(is) => Some(is.to_string()),
        Yaml::Null => Some(NOTHING.to_string()),
        _ => None,
    }
}

/// A truth value in one of the ways of YAML 1.1 and Python.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn no_yaml(why: &dyn fmt::Display) -> FlagError {
    FlagError::Text(format!("it is no YAML: {why}"))
}

/// A list or a section whose end is still to come.
struct Open {
    anchor: usize,
    nodes: u64,
}

/// Counts nodes and levels without making any node.
fn check(text: &str) -> Result<(), FlagError> {
    let mut parser = Parser::new_from_str(text);
    let mut anchors: HashMap<usize, u64> = HashMap::new();
    let mut open = vec![Open { anchor: 0, nodes: 0 }];
    loop {
        let (event, _) = parser.next_token().map_err(|why| no_yaml(&why))?;
        let nodes = match event {
            Event::StreamEnd => return Ok(()),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push(Open { anchor, nodes: 1 });
                if open.len() > DEPTH {
                    return Err(FlagError::Text(format!("it has more than {DEPTH} levels of lists and sections")));
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { anchor, nodes }) = open.pop() else { continue };
                anchors.insert(anchor, nodes);
                nodes
            }
            Event::Scalar(_, _, anchor, _) => {
                anchors.insert(anchor, 1);
                1
            }
            Event::Alias(anchor) => anchors.get(&anchor).copied().unwrap_or(1),
            _ => 0,
        };
        let around = open.last_mut().ok_or_else(|| no_yaml(&"an end without a beginning"))?;
        around.nodes = around.nodes.saturating_add(nodes);
        if around.nodes > NODES {
            return Err(FlagError::Text(format!("it has more than {NODES} values once its aliases are expanded")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_count_as_what_they_stand_for() {
        let level = |name: char, of: char| format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 9].join(","));
        let few: String = ["a: &a [x, x]\n".to_string(), level('b', 'a'), level('c', 'b')].concat();
        assert_eq!(load(&few).unwrap()["c"][8][8][1].as_str(), Some("x"));
        let many = ('c'..'y').fold(few, |text, name| text + &level((name as u8 + 1) as char, name));
        assert!(load(&many).unwrap_err().to_string().contains("once its aliases are expanded"));
    }

    #[test]
    fn nested_lists_end_with_a_message() {
        for text in ["- ".repeat(100_000), "? ".repeat(100_000), "[".repeat(200)] {
            load(&text).unwrap_err();
        }
        assert_eq!(load("a: [[1, 2]]").unwrap()["a"][0][1].as_i64(), Some(2));
        assert_eq!(load("").unwrap_err().to_string(), "it is empty");
    }
}
