//! Keys that an export does not state exactly.

use crate::Target;
use crate::assumption::Assumption;
use serde::Serialize;
use std::fmt;

/// A written configuration.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Export {
    /// The framework.
    pub target: Target,
    /// The file, or a script with the flags.
    pub text: String,
    /// The keys that it does not state exactly.
    pub notes: Vec<Note>,
    /// Assumptions of the prediction, with the lines that make them true.
    pub assumed: Vec<Assumption>,
}

/// The body of an export, without its heading.
pub(crate) struct Written {
    pub(crate) body: String,
    pub(crate) notes: Vec<Note>,
    pub(crate) assumed: Vec<Assumption>,
}

impl Written {
    /// A body that states no assumptions.
    pub(crate) fn plain(body: String, notes: Notes) -> Written {
        Written { body, notes: notes.0, assumed: Vec::new() }
    }
}

/// How a key of the configuration is stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The framework does nearly the same.
    Near,
    /// The framework does it, by the code of the model instead of the exported file.
    Code,
    /// The framework cannot do it; the export leaves it out.
    Lost,
}

/// A key that the export does not state exactly.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Note {
    /// The key of the configuration.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// How it is stated.
    pub grade: Grade,
    /// The difference, and for a lost key the nearest that can be stated.
    pub text: String,
    /// The framework's way, as this program says it.
    #[serde(skip)]
    pub instead: Option<Instead>,
    /// By how much the framework's way differs from the prediction, if that can be predicted.
    pub size: Option<Size>,
}

/// A change of a prediction's inputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Instead {
    /// Keys of the configuration with their values.
    Keys(String),
    /// Properties of the stack with their values.
    Traits(String),
    /// Another type of gradients.
    GradDtype(&'static str),
}

/// Difference of two predictions of one job.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Size {
    /// Seconds of a step; positive if the framework takes longer.
    pub seconds: f64,
    /// Bytes on the device with most memory in use; positive if the framework needs more.
    pub bytes: f64,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, sign) = (support::units::time(self.seconds.abs()), if self.seconds < 0.0 { '-' } else { '+' });
        write!(f, "{sign}{time} a step, {:+.1} GiB", self.bytes / (1u64 << 30) as f64)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note { key, value, grade, text, instead: _, size } = self;
        let grade = match grade {
            Grade::Near => "near",
            Grade::Code => "code",
            Grade::Lost => "lost",
        };
        write!(f, "{grade}: {key}={value}: {text}")?;
        size.map_or(Ok(()), |size| write!(f, " ({size})"))
    }
}

/// The notes of an export so far.
#[derive(Default)]
pub(crate) struct Notes(pub(crate) Vec<Note>);

impl Notes {
    pub(crate) fn near(&mut self, key: &'static str, value: impl ToString, text: &str) {
        self.add(key, value, Grade::Near, text, None);
    }

    /// Notes a key that the framework states nearly, with what it does instead.
    pub(crate) fn does(&mut self, instead: Instead, key: &'static str, value: impl ToString, text: &str) {
        self.add(key, value, Grade::Near, text, Some(instead));
    }

    pub(crate) fn of_code(&mut self, key: &'static str, value: impl ToString, text: &str) {
        self.add(key, value, Grade::Code, text, None);
    }

    pub(crate) fn lost(&mut self, key: &'static str, value: impl ToString, text: &str) {
        self.add(key, value, Grade::Lost, text, None);
    }

    fn add(&mut self, key: &'static str, value: impl ToString, grade: Grade, text: &str, instead: Option<Instead>) {
        self.0.push(Note { key, value: value.to_string(), grade, text: text.to_string(), instead, size: None });
    }

    /// Notes keys that a framework has no word for, if they are not at their defaults.
    pub(crate) fn unsaid(&mut self, keys: &[(&'static str, bool, String, &str)]) {
        for (key, is_set, value, text) in keys {
            if *is_set {
                self.lost(key, value, text);
            }
        }
    }
}
