//! Faults of examples and of chat templates.

/// Why a line is no example.
#[derive(Debug, thiserror::Error)]
pub enum ExampleError {
    /// The line is no JSON with the keys of an example.
    #[error("{0}")]
    Json(String),
    /// There are no keys of an example.
    #[error("there are neither `messages`, nor `prompt` and `completion`, nor `input_ids`")]
    NoKeys,
    /// There is not a label for each token.
    #[error("it has {ids} input_ids, but {labels} labels")]
    Lengths {
        /// The number of ids.
        ids: usize,
        /// The number of labels.
        labels: usize,
    },
    /// The tokenizer has no such id.
    #[error("the id {id} of token {place} is not from 0 to {}", vocabulary - 1)]
    UnknownId {
        /// The id.
        id: i64,
        /// Its place, from 0.
        place: usize,
        /// All ids are below.
        vocabulary: u64,
    },
    /// A label is no id, and does not say that it does not count.
    #[error("the label {label} of token {place} is neither -100 nor from 0 to {}", vocabulary - 1)]
    UnknownLabel {
        /// The label.
        label: i64,
        /// Its place, from 0.
        place: usize,
        /// All ids are below.
        vocabulary: u64,
    },
    /// A prompt is a text and its completion is not, or neither is one.
    #[error("`prompt` and `completion` are not two texts, nor two lists of messages")]
    NoTexts,
    /// There is nothing to learn.
    #[error("the completion is empty")]
    EmptyCompletion,
    /// The text takes too much memory.
    #[error("the text of the example has {bytes} bytes, above {most}")]
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The most that are read.
        most: usize,
    },
    /// A token goes over the begin of what counts.
    #[error(
        "the tokenizer joins what counts to the text before it, in the token {token:?} before {behind:?}: move spaces from the end of the \
         prompt to the completion"
    )]
    Joined {
        /// The text of the token.
        token: String,
        /// The begin of what counts.
        behind: String,
    },
    /// The tokenizer refuses the text.
    #[error("{0}")]
    Tokenizer(String),
    /// A value is no list.
    #[error("`{name}` is no list of messages")]
    NoList {
        /// The key.
        name: &'static str,
    },
    /// A message has no role.
    #[error("message {number} of `{name}` has no `role`")]
    NoRole {
        /// The key of the list.
        name: &'static str,
        /// The number of the message, from 1.
        number: usize,
    },
    /// Nobody says what is to be learned.
    #[error("there is no message of the assistant")]
    NoAssistant,
    /// There is no template for messages.
    #[error("messages need a chat template, which the tokenizer's folder does not have")]
    NoTemplate,
    /// The template cannot render the messages.
    #[error("the chat template refuses the messages: {0}")]
    Refused(TemplateError),
    /// The begin of a turn is not known.
    #[error(
        "the template renders the text before message {number} differently when messages follow, so that the assistant's part is not known"
    )]
    Differs {
        /// The number of the message, from 1.
        number: usize,
    },
    /// A message has a character that marks what counts.
    #[error("a message has the character U+FDD0 or U+FDD1, which is no character of a text")]
    Marks,
    /// No block of the template has any text.
    #[error("the generation blocks of the template have no text for this conversation")]
    EmptyBlocks,
}

/// The message of an error of a template, with its line.
#[derive(Debug)]
pub struct TemplateError(minijinja::Error);

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> TemplateError {
        TemplateError(error)
    }
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.detail() {
            Some(what) => f.write_str(what)?,
            None => write!(f, "{}", self.0.kind())?,
        }
        self.0.line().map_or(Ok(()), |line| write!(f, " (line {line} of the template)"))
    }
}
