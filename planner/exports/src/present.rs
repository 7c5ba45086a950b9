//! The configuration that a job has now, as the files of other frameworks state it.

use crate::stage_weights::StageWeights;
use crate::stated_model::StatedModel;
use cost::StackExpression;

/// Layout and batch of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Present {
    /// The configuration, as keys and values: `tp=4,pp=2,zero=1`. It has no dp where the file does not say how many devices there are.
    pub parallel: String,
    /// The model as the text of a `config.json`, if the file describes it.
    pub model: Option<String>,
    /// The stack of this program that predicts the framework, if there is one for what the file says.
    pub stack: Option<String>,
    /// Tokens of a sequence, if the file says.
    pub seq: Option<u64>,
    /// Sequences of a step, if the file says.
    pub global_batch: Option<u64>,
    /// The precision recipe.
    pub precision: String,
    /// The type of accumulated gradients, if the file says.
    pub grad_dtype: Option<String>,
    /// The type of master copies, if the file says.
    pub master: Option<String>,
    /// The optimizer.
    pub optimizer: String,
    /// Warnings about settings that a prediction does not know, with the part of it that they touch.
    pub warnings: Vec<String>,
    /// The model as the file states it.
    pub stated: StatedModel,
    /// Division of the layers among the stages, where it depends on how many the model has.
    pub split: Option<StageWeights>,
}

/// The preset stack that an export of this program names in its line `STACK=name`, of bash or of Python.
pub(crate) fn stated_stack(text: &str) -> Option<&str> {
    let value = text.lines().find_map(|line| line.strip_prefix("STACK")?.trim_start().strip_prefix('='))?;
    let name = value.trim_start_matches([' ', '"']).split([' ', '"']).next()?;
    StackExpression::of(name).is_of_preset().then_some(name)
}

/// The keys of a configuration, in the order in which they are found.
#[derive(Default)]
pub(crate) struct Keys(Vec<String>);

impl Keys {
    pub(crate) fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{key}={value}"));
    }

    pub(crate) fn text(&self) -> String {
        self.0.join(",")
    }
}
