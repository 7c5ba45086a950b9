//! Assumptions of a prediction about a framework, with the lines of an export that make them true.

use crate::job::Job;
use serde::Serialize;

/// An assumption of a prediction that a framework does not fulfil by its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Assumption {
    /// Its name.
    pub name: &'static str,
    /// Flags that make it true.
    pub flags: Vec<String>,
    /// Variables of the environment that make it true.
    pub environment: Vec<Variable>,
    /// Behaviour of the framework without them.
    pub without: &'static str,
}

/// A variable of the environment with its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value; `None`: it must not be set.
    pub value: Option<String>,
}

/// A row of a framework's table of assumptions.
pub(crate) struct AssumptionRow {
    pub(crate) name: &'static str,
    /// Behaviour of the framework without its lines.
    pub(crate) without: &'static str,
    /// Puts the lines of a job, if the assumption concerns it.
    pub(crate) write: fn(&Job, &mut Assumption),
}

impl AssumptionRow {
    /// The assumptions of a job that need to be written.
    pub(crate) fn written(rows: &[AssumptionRow], job: &Job) -> Vec<Assumption> {
        rows.iter().map(|row| row.of(job)).filter(|written| !written.is_void()).collect()
    }

    fn of(&self, job: &Job) -> Assumption {
        let mut written = Assumption { name: self.name, without: self.without, ..Assumption::default() };
        (self.write)(job, &mut written);
        written
    }
}

impl Variable {
    /// The line of bash that sets it.
    pub(crate) fn bash(&self) -> String {
        match &self.value {
            Some(value) => format!("export {}={value}\n", self.name),
            None => format!("unset {}\n", self.name),
        }
    }
}

impl Assumption {
    /// True if there is nothing to write.
    pub(crate) fn is_void(&self) -> bool {
        self.flags.is_empty() && self.environment.is_empty()
    }

    /// Puts a key of a YAML file with its value.
    pub(crate) fn key(&mut self, key: &str, value: impl std::fmt::Display) {
        self.flags.push(format!("{key}: {value}"));
    }

    pub(crate) fn set(&mut self, flag: &str) {
        self.flags.push(format!("--{flag}"));
    }

    pub(crate) fn put(&mut self, flag: &str, value: impl std::fmt::Display) {
        self.flags.push(format!("--{flag} {value}"));
    }

    pub(crate) fn set_if(&mut self, wanted: bool, flag: &str) {
        if wanted {
            self.set(flag);
        }
    }

    pub(crate) fn export(&mut self, name: &'static str, value: impl ToString) {
        self.environment.push(Variable { name, value: Some(value.to_string()) });
    }
}
