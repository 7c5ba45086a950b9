//! Routers that choose groups of experts first, and scores with a correction that only chooses (DeepSeek-V2 and V3).
//!
//! A graph parts the scores into groups, adds the best of each group or takes its maximum, keeps the best groups, and hides the scores of the
//! others. The top of what is left is the language's `top_k` with a limit.

use super::choose::ValueOrNumber;
use super::{Form, Lowering};
use crate::eval::Call;
use crate::graph::{RecordedNode, ValueId};
use crate::program::View;
use crate::refusal::{Refusal, contradiction};
use ir::ops::GroupLimit;

/// A step of scores on the way to the open groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Scores with an axis for groups.
    Parted,
    /// The highest scores of each group.
    Best { by: u64 },
    /// The score of each group.
    Score { by: u64 },
    /// The numbers of the open groups.
    Numbers { by: u64, from: u64 },
    /// Zeros for each group.
    Empty { by: u64 },
    /// True for what is open.
    Open { by: u64, from: u64 },
    /// True for what is not.
    Closed { by: u64, from: u64 },
    /// Scores, of which those of closed groups are hidden.
    Limited { by: u64, from: u64 },
}

/// Scores in groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupChoice {
    pub(super) scores: ValueId,
    pub(super) groups: u64,
    pub(super) stage: Stage,
}

/// The scores that a choice compares.
pub(super) struct Candidates {
    /// Without correction and limit.
    pub(super) scores: ValueId,
    pub(super) bias: Option<View>,
    pub(super) limit: Option<GroupLimit>,
}

impl<'a> Lowering<'a> {
    /// True for the scores of a router, which a choice may correct.
    fn is_scores(&mut self, x: ValueId) -> Result<bool, Refusal> {
        Ok(match self.form(x)? {
            Form::RouterScores(_) => true,
            Form::Sigmoid(of) => matches!(self.form(of)?, Form::Linear(_)),
            _ => false,
        })
    }

    /// The sum of scores and a correction, a parameter or a buffer.
    pub(super) fn biased(&mut self, node: &'a RecordedNode) -> Result<Option<Form>, Refusal> {
        let (Ok(a), Ok(b)) = (self.argument(node, "self"), self.argument(node, "other")) else { return Ok(None) };
        for (scores, bias) in [(a, b), (b, a)] {
            if self.known[scores.index()].is_some() || !self.is_scores(scores)? {
                continue;
            }
            let view = match self.known(bias) {
                Some(_) => self.constant(bias)?,
                None => match self.form(bias)? {
                    Form::Weight(view) => Some(view),
                    _ => None,
                },
            };
            if let Some(bias) = view.filter(|view| view.dims.len() == 1) {
                return Ok(Some(Form::Biased { scores, bias }));
            }
        }
        Ok(None)
    }

    /// True for nodes that read groups first.
    pub(super) fn is_of_groups(&self, node: &RecordedNode) -> bool {
        let first = node.operands().next().map(|operand| self.id(operand));
        first.is_some_and(|first| matches!(self.forms.get(&first), Some(Form::Groups(_))))
    }

    /// Views and functions of scores in groups.
    pub(super) fn about_groups(&mut self, node: &'a RecordedNode) -> Result<Option<Vec<Form>>, Refusal> {
        let Some(x) = node.operands().next().map(|operand| self.id(operand)) else { return Ok(None) };
        if self.known[x.index()].is_some() {
            return Ok(None);
        }
        let form = self.form(x)?;
        if let Form::Groups(choice) = form {
            return self.next_stage(node, choice).map(Some);
        }
        let is_view = matches!(node.family(), "aten.view" | "aten.reshape" | "aten._unsafe_view");
        if is_view && (matches!(form, Form::Biased { .. }) || self.is_scores(x)?) {
            let sizes = self.call(node).ints(if node.arg("size").is_some() { "size" } else { "shape" })?;
            let axes = self.axes(x)?;
            let experts = axes.last().map(|axis| self.atoms.total(axis));
            if let &[.., groups, each] = sizes.as_slice()
                && experts == groups.checked_mul(each).and_then(|all| u64::try_from(all).ok())
                && sizes.len() == axes.len() + 1
            {
                let choice = GroupChoice { scores: x, groups: groups as u64, stage: Stage::Parted };
                return Ok(Some(vec![Form::Groups(choice)]));
            }
        }
        Ok(None)
    }

    fn next_stage(&mut self, node: &'a RecordedNode, choice: GroupChoice) -> Result<Vec<Form>, Refusal> {
        let GroupChoice { groups, stage, .. } = choice;
        let to = |stage: Stage| Form::Groups(GroupChoice { stage, ..choice });
        let call = self.call(node);
        let stages = match (node.family(), stage) {
            ("aten.topk", Stage::Parted) => vec![to(Stage::Best { by: count_of(&call)? }), Form::Refused(BEST)],
            ("aten.max" | "aten.amax", Stage::Parted) => vec![to(Stage::Score { by: 1 }), Form::Refused(BEST)],
            ("aten.sum", Stage::Best { by }) => vec![to(Stage::Score { by })],
            ("aten.topk", Stage::Score { by }) => {
                vec![Form::Refused(BEST), to(Stage::Numbers { by, from: count_of(&call)? })]
            }
            ("aten.zeros_like", Stage::Score { by }) => vec![to(Stage::Empty { by })],
            ("aten.scatter" | "aten.scatter_", Stage::Empty { by }) if call.number_or("value", 0.0)? != 0.0 => {
                let numbers = self.argument(node, "index")?;
                match self.form(numbers)? {
                    Form::Groups(GroupChoice { scores, groups: own, stage: Stage::Numbers { by: n, from } })
                        if (scores, own, n) == (choice.scores, groups, by) =>
                    {
                        vec![to(Stage::Open { by, from })]
                    }
                    _ => return Err(UNKNOWN.into()),
                }
            }
            (
                "aten.unsqueeze"
                | "aten.expand"
                | "aten.reshape"
                | "aten.view"
                | "aten._unsafe_view"
                | "aten.repeat_interleave"
                | "aten.flatten",
                Stage::Open { .. } | Stage::Closed { .. },
            ) => vec![to(stage)],
            ("aten.bitwise_not" | "aten.logical_not", Stage::Open { by, from }) => vec![to(Stage::Closed { by, from })],
            ("aten.topk", Stage::Limited { .. }) => return self.top_k(node),
            _ => return Err(UNKNOWN.into()),
        };
        Ok(stages)
    }

    /// Scores of which those of closed groups are replaced by a number.
    pub(super) fn limited(&mut self, x: ValueId, mask: ValueId, by: ValueOrNumber) -> Result<Option<Form>, Refusal> {
        let Form::Groups(choice) = self.form(mask)? else { return Ok(None) };
        let (Stage::Closed { by: n, from }, ValueOrNumber::Number(number)) = (choice.stage, by) else {
            return Err(UNKNOWN.into());
        };
        // Scores are above 0; with a correction only the lowest number is below all.
        let has_bias = matches!(self.form(x)?, Form::Biased { .. });
        if x != choice.scores || number > 0.0 || has_bias && number > super::mask::LOW {
            return Err("scores of groups that are closed are replaced by others than the lowest".into());
        }
        Ok(Some(Form::Groups(GroupChoice { stage: Stage::Limited { by: n, from }, ..choice })))
    }

    /// The scores that a choice compares, taken apart.
    pub(super) fn taken_apart(&mut self, x: ValueId) -> Result<Candidates, Refusal> {
        Ok(match self.form(x)? {
            Form::Groups(GroupChoice { scores, groups, stage: Stage::Limited { by, from } }) => {
                let inner = self.taken_apart(scores)?;
                let limit = (from < groups).then_some(GroupLimit { groups, from, by });
                Candidates { limit, ..inner }
            }
            Form::Biased { scores, bias } => Candidates { scores, bias: Some(bias), limit: None },
            _ => Candidates { scores: x, bias: None, limit: None },
        })
    }
}

/// The number of highest scores that a node takes.
fn count_of(call: &Call<'_>) -> Result<u64, Refusal> {
    u64::try_from(call.int("k")?).map_err(|_| contradiction("a negative number of groups"))
}

const BEST: &str = "the best of groups of experts are read in an unknown way";
const UNKNOWN: &str = "groups of experts are chosen in an unknown way";
