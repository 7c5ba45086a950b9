//! Examples for fine-tuning: lines of JSON that say which of their tokens count in the loss.
//!
//! | keys | what counts |
//! |---|---|
//! | `messages` | what the assistant says |
//! | `prompt`, `completion` | the completion: two texts, or two lists of messages |
//! | `input_ids`, `labels` | tokens whose label is not -100; all without labels |

use super::chat::{ChatTemplate, Conversation, MarkedText};
use super::encoder::TextCodec;
use super::example_error::ExampleError;
use data::tokens::NO_LABEL;
use minijinja::value::{Value, ValueKind};
use serde::Deserialize;
use std::ops::Range;

/// The label of a token that does not count, in JSON.
const IGNORED: i64 = -100;

/// The most bytes of the text of an example. The library of tokenizers takes up to 200 times as many.
const MOST_TEXT: usize = 1 << 22;

/// A line of examples.
#[derive(Deserialize)]
pub(crate) struct Line {
    messages: Option<Value>,
    prompt: Option<Value>,
    completion: Option<Value>,
    #[serde(default)]
    tools: Value,
    input_ids: Option<Vec<i64>>,
    labels: Option<Vec<i64>>,
}

/// The tokens of an example, each with its label.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelledIds {
    pub(crate) ids: Vec<u32>,
    pub(crate) labels: Vec<i32>,
    /// Bytes of its text.
    pub(crate) bytes: usize,
}

impl Line {
    /// Reads a line.
    ///
    /// # Errors
    /// It is no JSON of this form.
    pub(crate) fn of(line: &[u8]) -> Result<Line, ExampleError> {
        // The reader counts the lines of what it was given, which is one.
        let read = serde_json::from_slice::<Line>(line);
        read.map_err(|why| {
            ExampleError::Json(why.to_string().split(" at line ").next().unwrap_or_default().to_string())
        })
    }

    /// True if it has the keys of an example.
    pub(crate) fn is_example(&self) -> bool {
        self.messages.is_some() || self.input_ids.is_some() || self.prompt.is_some() && self.completion.is_some()
    }
}

/// Makes tokens of examples.
pub(crate) struct ExampleEncoder<'a> {
    pub(crate) codec: &'a TextCodec,
    pub(crate) template: Option<&'a ChatTemplate>,
}

impl ExampleEncoder<'_> {
    /// The tokens of a line.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn encode(&self, line: &Line) -> Result<LabelledIds, ExampleError> {
        match line {
            Line { messages: Some(messages), tools, .. } => {
                let (messages, tools) = (list("messages", messages)?, tools.clone());
                self.conversation(&Conversation { messages, asked: 0, tools })
            }
            Line { input_ids: Some(ids), labels, .. } => self.given(ids, labels.as_deref()),
            Line { prompt: Some(prompt), completion: Some(completion), tools, .. } => {
                self.completion(prompt, completion, tools)
            }
            _ => Err(ExampleError::NoKeys),
        }
    }

    /// Tokens that a line has itself.
    fn given(&self, ids: &[i64], labels: Option<&[i64]>) -> Result<LabelledIds, ExampleError> {
        let labels = labels.unwrap_or(ids);
        if ids.len() != labels.len() {
            return Err(ExampleError::Lengths { ids: ids.len(), labels: labels.len() });
        }
        let (vocabulary, mut example) = (self.codec.vocabulary(), LabelledIds::default());
        for (place, (&id, &label)) in ids.iter().zip(labels).enumerate() {
            example.ids.push(self.known(id).ok_or(ExampleError::UnknownId { id, place, vocabulary })?);
            let known = if label == IGNORED { Some(NO_LABEL) } else { self.known(label).map(u32::cast_signed) };
            example.labels.push(known.ok_or(ExampleError::UnknownLabel { label, place, vocabulary })?);
        }
        Ok(example)
    }

    /// A number as an id, if the tokenizer has it.
    fn known(&self, id: i64) -> Option<u32> {
        u32::try_from(id).ok().filter(|&id| u64::from(id) < self.codec.vocabulary())
    }

    /// A prompt and what is to follow it.
    fn completion(&self, prompt: &Value, completion: &Value, tools: &Value) -> Result<LabelledIds, ExampleError> {
        if prompt.kind() == ValueKind::Seq && completion.kind() == ValueKind::Seq {
            let mut messages = list("prompt", prompt)?;
            let asked = messages.len();
            messages.extend(list("completion", completion)?);
            return self.conversation(&Conversation { messages, asked, tools: tools.clone() });
        }
        let (Some(prompt), Some(completion)) = (prompt.as_str(), completion.as_str()) else {
            return Err(ExampleError::NoTexts);
        };
        if completion.is_empty() {
            return Err(ExampleError::EmptyCompletion);
        }
        let text = [prompt, completion].concat();
        let counted = std::iter::once(prompt.len()..text.len()).collect();
        self.marked(&MarkedText { counted, text })
    }

    fn conversation(&self, conversation: &Conversation) -> Result<LabelledIds, ExampleError> {
        let template = self.template.ok_or(ExampleError::NoTemplate)?;
        self.marked(&template.render(conversation)?)
    }

    /// The tokens of a text, of which parts count.
    fn marked(&self, text: &MarkedText) -> Result<LabelledIds, ExampleError> {
        let MarkedText { text, counted } = text;
        if text.len() > MOST_TEXT {
            return Err(ExampleError::TooLong { bytes: text.len(), most: MOST_TEXT });
        }
        let (ids, places) = self.codec.ids_with_places(text).map_err(|why| ExampleError::Tokenizer(why.to_string()))?;
        let (mut labels, mut parts) = (Vec::with_capacity(ids.len()), counted.iter().peekable());
        for (&id, place) in ids.iter().zip(&places) {
            while parts.next_if(|part| part.end <= place.start).is_some() {}
            let part = parts.peek().filter(|part| place.end.max(place.start + 1) > part.start);
            if let Some(part) = part.filter(|part| place.start < part.start) {
                return Err(joined(text, part, place));
            }
            labels.push(part.map_or(NO_LABEL, |_| id.cast_signed()));
        }
        Ok(LabelledIds { ids, labels, bytes: text.len() })
    }
}

/// The error of a token that goes over the begin of what counts.
fn joined(text: &str, part: &Range<usize>, place: &Range<usize>) -> ExampleError {
    let token = text.get(place.clone()).unwrap_or_default().to_string();
    ExampleError::Joined { token, behind: text[part.start..].chars().take(10).collect() }
}

/// The messages of a list.
fn list(name: &'static str, value: &Value) -> Result<Vec<Value>, ExampleError> {
    let messages = (value.kind() == ValueKind::Seq).then(|| value.try_iter().ok()).flatten();
    let messages: Vec<Value> = messages.ok_or(ExampleError::NoList { name })?.collect();
    match messages.iter().position(|message| !has_role(message)) {
        Some(number) => Err(ExampleError::NoRole { name, number: number + 1 }),
        None => Ok(messages),
    }
}

fn has_role(message: &Value) -> bool {
    message.kind() == ValueKind::Map && message.get_attr("role").is_ok_and(|role| role.as_str().is_some())
}
