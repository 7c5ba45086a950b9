//! Reasons why nodes have no meaning.

use std::borrow::Cow;
use std::fmt;

/// A reason why a node becomes no statement or has no value, with a sentence about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is no op of this name.
    UnknownOp(String),
    /// An op reads an argument that is computed from the input, where only a constant has a meaning.
    NoConstant { op: String },
    /// The export is one of training: values are dropped at random.
    Dropout,
    /// An argument is missing or of another type.
    Argument { name: String, fault: &'static str },
    /// The graph contradicts itself: sizes or arguments do not go together.
    Contradiction(Cow<'static, str>),
    /// A form of an op has no meaning in the language.
    Form(Cow<'static, str>),
}

impl Refusal {
    /// The refusal of an argument, such as `self` that `is missing`.
    pub(crate) fn argument(name: &str, fault: &'static str) -> Refusal {
        Refusal::Argument { name: name.to_string(), fault }
    }
}

/// The refusal of a graph that contradicts itself.
pub(crate) fn contradiction(why: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::Contradiction(why.into())
}

impl From<String> for Refusal {
    /// The refusal of a form.
    fn from(why: String) -> Refusal {
        Refusal::Form(why.into())
    }
}

impl From<&'static str> for Refusal {
    /// The refusal of a form.
    fn from(why: &'static str) -> Refusal {
        Refusal::Form(why.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnknownOp(op) => write!(f, "there is no op `{op}` in this version"),
            Refusal::NoConstant { op } => write!(f, "`{op}` with an argument that is no constant is not supported"),
            Refusal::Dropout => f.write_str("dropout is active; export the model in evaluation mode: model.eval()"),
            Refusal::Argument { name, fault } => write!(f, "`{name}` {fault}"),
            Refusal::Contradiction(why) | Refusal::Form(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}
