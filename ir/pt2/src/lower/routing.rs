//! Routers: the scores of experts, the experts of each token, and what a graph computes from their numbers to sort tokens by expert.
//!
//! The numbers of experts depend on data, so such values are known by what they stand for. Slots are the choices of all tokens, in the
//! order of tokens, then of choices.

use super::groups::Candidates;
use super::linear::Linear;
use super::{Data, Form, Lowering};
use crate::atoms::{Atom, Axis};
use crate::graph::{Arg, RecordedNode, ValueId};
use crate::program::{Action, Argument, Use, Var};
use crate::refusal::{Refusal, contradiction};
use ir::ops::UnaryKind;

/// The experts that a router chose.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// The numbers of the experts, `[b, s, chosen]`.
    pub(super) numbers: Var,
    /// The dim of the experts of a token.
    pub(super) chosen: Atom,
    /// The dim of all experts.
    pub(super) experts: Atom,
    /// The scores in the graph.
    pub(super) scores: ValueId,
    /// The scores of the chosen experts.
    pub(super) values: Data,
}

/// Meaning of the integers of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotKind {
    /// The expert of each slot. Flat: in one dim.
    Expert { is_flat: bool },
    /// The experts of the slots, sorted.
    Sorted,
    /// The slots, sorted by their experts.
    Order,
    /// The token of each of the sorted slots.
    Token,
    /// The number of slots of each expert.
    Counts,
    /// The end of each expert's sorted slots.
    Ends,
    /// Elements for all slots that are not yet set.
    Unset,
    /// The place of each slot in the order.
    Place,
}

/// A value about the slots of a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// The number of the choice.
    pub(super) choice: usize,
    pub(super) kind: SlotKind,
}

impl<'a> Lowering<'a> {
    /// The highest scores of a router, and the experts that have them.
    pub(super) fn top_k(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, Refusal> {
        let x = self.argument(node, "self")?;
        let Candidates { scores: of, bias, limit } = self.taken_apart(x)?;
        let axes = self.axes(of)?;
        let lead = axes.len().saturating_sub(1);
        let call = self.call(node);
        if call.dim("dim", -1, axes.len())? != lead || node.arg("largest") == Some(&Arg::Bool(false)) {
            return Err("other experts are chosen than those of the highest scores".into());
        }
        let k = u64::try_from(call.int("k")?).map_err(|_| contradiction("a negative number of experts"))?;
        if self.atoms.leaves(&axes[..lead].concat()) != [self.batch, self.sequence] {
            return Err(NO_ROUTER.into());
        }
        let scores = self.compared_scores(of)?;
        let dims = self.dims(scores);
        let [tokens @ .., experts] = dims.as_slice() else { return Err(NO_ROUTER.into()) };
        if k == 0 || k > self.atoms.size(*experts) || tokens.len() != 2 {
            return Err(contradiction(format!("{k} of {} experts cannot be chosen", self.atoms.size(*experts))));
        }
        let mut operands = vec![Argument::Var(scores)];
        let is_biased = bias.is_some();
        if let Some(bias) = bias {
            self.atoms.unify(&[*experts], &[bias.dims[0].0])?;
            operands.push(self.weight(bias, Use::Bias));
        }
        let experts = self.atoms.size(*experts);
        let (chosen, experts) = (self.atoms.add_whole(k), self.atoms.add(experts));
        self.program.routing.chosen.insert(chosen);
        let dims = vec![self.batch, self.sequence, chosen];
        let [values, numbers] = self.state_two(Action::TopK { k, limit }, operands, [dims.clone(), dims]);
        let axes: Vec<Axis> = axes[..lead].iter().cloned().chain([vec![chosen]]).collect();
        let values = Data { var: values, axes };
        self.choices.push(Choice { numbers, chosen, experts, scores: of, values: values.clone() });
        let kind = SlotKind::Expert { is_flat: false };
        let slots = Slots { choice: self.choices.len() - 1, kind };
        // Highest scores have the correction in a graph, and not in the language.
        let values = if is_biased { Form::Refused(CORRECTED) } else { Form::Data(values) };
        Ok(vec![values, Form::Slots(slots)])
    }

    /// Scores on tokens in routing groups.
    fn compared_scores(&mut self, of: ValueId) -> Result<Var, Refusal> {
        let (logits, function) = match self.form(of)? {
            Form::RouterScores(logits) => (logits, Some(Action::Softmax)),
            Form::Sigmoid(x) => match self.form(x)? {
                Form::Linear(logits) => (logits, Some(Action::Unary(UnaryKind::Sigmoid))),
                _ => return self.scores_of_data(of),
            },
            Form::Linear(logits) => (logits, None),
            _ => return self.scores_of_data(of),
        };
        if let Some(&known) = self.scores.get(&of) {
            return Ok(known);
        }
        let mut scores = self.router(&logits)?;
        if let Some(action) = function {
            let dims = self.dims(scores);
            scores = self.state(action, vec![Argument::Var(scores)], dims);
        }
        self.scores.insert(of, scores);
        Ok(scores)
    }

    fn scores_of_data(&mut self, of: ValueId) -> Result<Var, Refusal> {
        let data = self.data(of)?;
        let var = self.laid(&data);
        match self.dims(var).as_slice() {
            [b, s, _] if [*b, *s] == [self.batch, self.sequence] => Ok(var),
            _ => Err(NO_ROUTER.into()),
        }
    }

    /// The scores of chosen experts.
    pub(super) fn gathered(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let (x, index) = (self.argument(node, "self")?, self.argument(node, "index")?);
        let rank = self.axes(x)?.len();
        let slots = self.slots(index)?.ok_or("elements are gathered at places that depend on data")?;
        let choice = &self.choices[slots.choice];
        let is_last = self.call(node).dim("dim", 0, rank)? + 1 == rank;
        if choice.scores != x || !is_last || slots.kind != (SlotKind::Expert { is_flat: false }) {
            return Err("other values than the scores of the chosen experts are gathered".into());
        }
        Ok(Form::Data(choice.values.clone()))
    }

    /// The softmax of a router's logits, of the scores that it chose, or of other rows.
    pub(super) fn softmax_of_rows(&mut self, node: &'a RecordedNode, x: ValueId) -> Result<Form, Refusal> {
        let rank = self.axes(x)?.len();
        if self.call(node).dim("dim", -1, rank)? + 1 != rank {
            return Err("a softmax of other scores than a token's".into());
        }
        match self.form(x)? {
            Form::Linear(logits) => Ok(Form::RouterScores(logits)),
            _ => {
                let data = self.data(x)?;
                self.softmax_of(data).map(Form::Data)
            }
        }
    }

    /// The softmax along the last axis.
    pub(super) fn softmax_of(&mut self, data: Data) -> Result<Data, Refusal> {
        let last = data.axes.len().checked_sub(1).ok_or(contradiction("a softmax of a scalar"))?;
        let data = self.with_axis(&data, last);
        let data = self.with_rows(data);
        let dims = self.dims(data.var);
        let var = self.state(Action::Softmax, vec![Argument::Var(data.var)], dims);
        Ok(Data { var, axes: data.axes })
    }

    /// The logits of a router, on tokens in routing groups.
    fn router(&mut self, logits: &Linear) -> Result<Var, Refusal> {
        let node = std::mem::replace(&mut self.node, logits.node);
        let x = self.grouped(logits.x.var);
        self.node = node;
        let mut logits = logits.clone();
        logits.x.var = x;
        self.product(&logits).map(|data| data.var)
    }

    /// A value with its tokens in sequences again.
    pub(super) fn ungrouped(&mut self, x: Var) -> Var {
        let dims = self.program.vars[x.0].clone();
        self.state(Action::Ungroup, vec![Argument::Var(x)], dims)
    }

    /// A value with its tokens in routing groups.
    pub(super) fn grouped(&mut self, x: Var) -> Var {
        if self.program.grouped.contains(&x) {
            return x;
        }
        if let Some(&grouped) = self.groups.get(&x) {
            return grouped;
        }
        let dims = self.program.vars[x.0].clone();
        let grouped = self.state(Action::Group, vec![Argument::Var(x)], dims);
        self.groups.insert(x, grouped);
        grouped
    }

    /// The slots of a value.
    pub(super) fn slots(&mut self, value: ValueId) -> Result<Option<Slots>, Refusal> {
        if self.known(value).is_some() {
            return Ok(None);
        }
        Ok(if let Form::Slots(slots) = self.form(value)? { Some(slots) } else { None })
    }

    fn slots_of(&mut self, node: &'a RecordedNode, name: &str) -> Result<Slots, Refusal> {
        let value = self.argument(node, name)?;
        self.slots(value)?.ok_or_else(|| format!("`{}` of activations is not supported", node.family()).into())
    }

    /// True for nodes that compute integers about slots.
    pub(super) fn is_of_slots(&mut self, node: &'a RecordedNode) -> bool {
        let first = node.operands().next().map(|operand| self.id(operand));
        first.is_some_and(|first| matches!(self.forms.get(&first), Some(Form::Slots(_))))
    }

    /// A node that reads slots first.
    pub(super) fn about_slots(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, Refusal> {
        let Slots { choice, kind } = self.slots_of(node, if node.arg("self").is_some() { "self" } else { "input" })?;
        let chosen = self.atoms.size(self.choices[choice].chosen) as f64;
        let experts = self.atoms.size(self.choices[choice].experts) as f64;
        let call = self.call(node);
        let is_first = |call: &crate::eval::Call<'_>| call.dim("dim", 0, 1) == Ok(0);
        let kinds = match (node.family(), kind) {
            ("aten.view" | "aten.reshape" | "aten._unsafe_view" | "aten.flatten", SlotKind::Expert { .. }) => {
                let is_flat = node.family() == "aten.flatten" && call.int_or("start_dim", 0)? == 0
                    || ["size", "shape"].iter().any(|name| call.ints(name).is_ok_and(|sizes| sizes.len() == 1));
                vec![SlotKind::Expert { is_flat }]
            }
            ("aten.sort", SlotKind::Expert { is_flat: true }) if !call.flag("descending") => {
                vec![SlotKind::Sorted, SlotKind::Order]
            }
            ("aten.argsort", SlotKind::Expert { is_flat: true }) if !call.flag("descending") => vec![SlotKind::Order],
            ("aten.argsort", SlotKind::Order) if !call.flag("descending") => vec![SlotKind::Place],
            ("aten.floor_divide" | "aten.div", SlotKind::Order)
                if call.number("other")? == chosen
                    && (node.family() == "aten.floor_divide" || call.text("rounding_mode") == Some("floor")) =>
            {
                vec![SlotKind::Token]
            }
            ("aten.histc", SlotKind::Expert { is_flat: true } | SlotKind::Sorted)
                if [call.number("bins")?, call.number("min")?, call.number("max")?]
                    == [experts, 0.0, experts - 1.0] =>
            {
                vec![SlotKind::Counts]
            }
            ("aten.bincount", SlotKind::Expert { is_flat: true } | SlotKind::Sorted)
                if call.number_or("minlength", 0.0)? == experts && node.arg("weights").is_none() =>
            {
                vec![SlotKind::Counts]
            }
            ("aten.cumsum", SlotKind::Counts) if is_first(&call) => vec![SlotKind::Ends],
            ("aten.empty_like" | "aten.zeros_like", SlotKind::Order) => vec![SlotKind::Unset],
            ("aten.index_put" | "aten.index_put_", SlotKind::Unset) => vec![self.placed(node, choice)?],
            _ => return Err(format!("`{}` of the numbers of experts is not supported", node.op).into()),
        };
        Ok(kinds.into_iter().map(|kind| Form::Slots(Slots { choice, kind })).collect())
    }

    /// The places of slots in their order: `empty[order] = arange`.
    fn placed(&mut self, node: &'a RecordedNode, choice: usize) -> Result<SlotKind, Refusal> {
        let values = self.argument(node, "values")?;
        let order = self.only_index(node)?;
        let is_order = self.slots(order)?.is_some_and(|slots| (slots.choice, slots.kind) == (choice, SlotKind::Order));
        let counts = self.known(values).is_some_and(|values| {
            values.sizes.len() == 1 && values.data.iter().enumerate().all(|(at, &value)| value == at as f64)
        });
        if is_order && counts && !self.call(node).flag("accumulate") {
            return Ok(SlotKind::Place);
        }
        Err("elements are put elsewhere than to the places of sorted choices".into())
    }

    /// `index_put(empty, [order], arange)` on memory without elements, whose size alone is known.
    pub(super) fn put(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let order = self.only_index(node)?;
        match self.slots(order)? {
            Some(Slots { choice, kind: SlotKind::Order }) => {
                Ok(Form::Slots(Slots { choice, kind: self.placed(node, choice)? }))
            }
            _ => Err("elements are put to places that depend on data".into()),
        }
    }

    /// The index of a node with one.
    pub(super) fn only_index(&self, node: &RecordedNode) -> Result<ValueId, Refusal> {
        match node.arg("indices") {
            Some(Arg::Values(values)) => match values.as_slice() {
                [Some(index)] => Ok(self.id(*index)),
                _ => Err("several indices of activations are not supported".into()),
            },
            _ => Err(contradiction("it has no indices")),
        }
    }

    /// True if these axes are the slots of a choice, in their order.
    pub(super) fn is_slots(&self, axes: &[Axis], choice: usize) -> bool {
        self.atoms.leaves(&axes.concat()) == [self.batch, self.sequence, self.choices[choice].chosen]
    }
}

const CORRECTED: &str = "highest scores are read with the correction that only chooses";
const NO_ROUTER: &str = "the highest are chosen of values that are no scores of a router";
