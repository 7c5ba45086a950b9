//! Experts: the rows that they read, products with their matrices, and the sum of what the experts of a token give.
//!
//! A graph sorts its rows by expert for products of groups, or takes the matrices of each row's expert for a batch of products. Both are
//! the language's `dispatch`, a product with a dim of experts, and `combine`.

use super::linear::{Factor, Linear};
use super::routing::{SlotKind, Slots};
use super::{Data, Form, Lowering};
use crate::atoms::{Atom, Axis};
use crate::graph::{Arg, RecordedNode, ValueId};
use crate::program::{Action, Argument, Var, View};
use crate::refusal::{Refusal, contradiction};
use ir::types::PartialKind;

/// The rows of the experts of a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExpertRows {
    choice: usize,
    /// The value that the rows are of.
    x: Var,
    /// The graph has them sorted by expert; else in the order of slots.
    is_sorted: bool,
    /// The dim of the rows.
    atom: Atom,
    var: Var,
}

/// Rows times the weights of their slots.
#[derive(Clone, Debug)]
pub(crate) struct Weighted {
    choice: usize,
    rows: Var,
    weights: Var,
    /// The axes in the graph; the slots in their order are tokens and choices.
    axes: Vec<Axis>,
}

impl<'a> Lowering<'a> {
    /// Elements at integers that depend on data: rows of tokens by expert, matrices of experts, weights of slots.
    pub(super) fn indexed(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        if let Some(form) = self.known_places(node)? {
            return Ok(form);
        }
        let (x, index) = (self.argument(node, "self")?, self.only_index(node)?);
        let Some(Slots { choice, kind }) = self.slots(index)? else {
            return Err("elements are taken at places that depend on data".into());
        };
        match (self.form(x)?, kind) {
            (Form::Weight(matrices), SlotKind::Expert { is_flat: true }) if matrices.dims.len() == 3 => {
                Ok(Form::Matrices { matrices, choice })
            }
            (Form::Weight(biases), SlotKind::Expert { is_flat: true } | SlotKind::Sorted) if biases.dims.len() == 2 => {
                Ok(Form::RowBiases { biases, choice })
            }
            (Form::Weighted(weighted), SlotKind::Place) if weighted.choice == choice => {
                let slots = vec![self.batch, self.sequence, self.choices[choice].chosen];
                let axes = [slots].into_iter().chain(weighted.axes[1..].iter().cloned()).collect();
                Ok(Form::Weighted(Weighted { axes, ..weighted }))
            }
            (_, SlotKind::Token) => {
                let x = self.data(x)?;
                let Some((tokens, rest)) = x.axes.split_first() else {
                    return Err(contradiction("a scalar is indexed"));
                };
                if self.atoms.leaves(tokens) != [self.batch, self.sequence] || rest.len() != 1 {
                    return Err("rows of experts are no tokens".into());
                }
                self.dispatched(&x, choice, true).map(Form::Data)
            }
            (_, SlotKind::Order) => {
                let weights = self.data(x)?;
                if weights.axes.len() == 1 && self.is_slots(&weights.axes, choice) {
                    return Ok(Form::RowWeights { weights: weights.var, choice, is_column: false });
                }
                Err("other values than weights are sorted by expert".into())
            }
            _ => Err("elements are taken by the numbers of experts in an unknown way".into()),
        }
    }

    /// The rows of experts of a value whose last axis is that of its elements.
    fn dispatched(&mut self, x: &Data, choice: usize, is_sorted: bool) -> Result<Data, Refusal> {
        let dims = self.dims(x.var);
        let inner = match dims.as_slice() {
            [b, s, inner @ ..]
                if [*b, *s] == [self.batch, self.sequence]
                    && x.axes.get(1).is_some_and(|axis| self.atoms.leaves(axis) == inner) =>
            {
                inner.to_vec()
            }
            _ => return Err("rows of experts are no tokens".into()),
        };
        let known = self.rows.iter().find(|rows| (rows.choice, rows.x, rows.is_sorted) == (choice, x.var, is_sorted));
        if let Some(&ExpertRows { atom, var, .. }) = known {
            return Ok(Data { var, axes: vec![vec![atom], inner] });
        }
        let slots = [self.batch, self.sequence, self.choices[choice].chosen];
        let atom = self.atoms.add_whole(self.atoms.total(&slots));
        self.program.routing.rows.insert(atom);
        let numbers = self.choices[choice].numbers;
        let operands = [x.var, numbers].map(|var| Argument::Var(self.grouped(var))).to_vec();
        let var = self.state(Action::Dispatch, operands, [&[atom], inner.as_slice()].concat());
        self.rows.push(ExpertRows { choice, x: x.var, is_sorted, atom, var });
        Ok(Data { var, axes: vec![vec![atom], inner] })
    }

    /// The rows that an axis is.
    fn rows_of(&self, axis: &[Atom]) -> Option<ExpertRows> {
        let leaves = self.atoms.leaves(axis);
        self.rows.iter().find(|rows| leaves == [rows.atom]).copied()
    }

    /// `grouped_mm(rows, matrices, ends)`: rows that are sorted by expert, times the matrices `[e, input, output]` of their experts.
    pub(super) fn grouped_product(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let [x, w] = if node.arg("input").is_some() { ["input", "weight"] } else { ["self", "mat2"] };
        let (x, w, ends) = (self.argument(node, x)?, self.argument(node, w)?, self.argument(node, "offs")?);
        let (Form::Weight(matrices), Some(slots)) = (self.form(w)?, self.slots(ends)?) else {
            return Err("a product of groups whose matrices are no parameter".into());
        };
        let x = self.data(x)?;
        let rows = x.axes.first().and_then(|axis| self.rows_of(axis)).filter(|rows| rows.is_sorted);
        if rows.is_none_or(|rows| (slots.choice, slots.kind) != (rows.choice, SlotKind::Ends)) || x.axes.len() != 2 {
            return Err("a product of groups that are not the rows of experts".into());
        }
        let [experts, input, output] = three(&matrices)?;
        self.expert_product(&x, &matrices, [experts, input, output], slots.choice).map(Form::Linear)
    }

    /// `bmm(matrices[expert], rows)`: each row times the matrix of its expert, which is `[output, input]` before the row or
    /// `[input, output]` behind it.
    pub(super) fn batched_product(&mut self, node: &'a RecordedNode) -> Result<Option<Form>, Refusal> {
        let (a, b) = (self.argument(node, "self")?, self.argument(node, "mat2")?);
        for (matrices, x, is_before) in [(a, b, true), (b, a, false)] {
            if self.known(matrices).is_some() || self.known(x).is_some() {
                continue;
            }
            let Form::Matrices { matrices, choice } = self.form(matrices)? else { continue };
            let x = self.data(x)?;
            let one = if is_before { 2 } else { 1 };
            if x.axes.len() != 3 || self.atoms.total(&x.axes[one]) != 1 {
                return Err("several rows are multiplied with the matrix of an expert".into());
            }
            let mut axes = x.axes.clone();
            axes.remove(one);
            let x = self.rows(&Data { var: x.var, axes }, choice)?;
            let [experts, first, second] = three(&matrices)?;
            let [input, output] = if is_before { [second, first] } else { [first, second] };
            let mut product = self.expert_product(&x, &matrices, [experts, input, output], choice)?;
            product.axes.insert(one, Vec::new());
            return Ok(Some(Form::Linear(product)));
        }
        Ok(None)
    }

    /// Rows in the order of slots: those of experts, or tokens that are repeated for each of their experts.
    fn rows(&mut self, x: &Data, choice: usize) -> Result<Data, Refusal> {
        let first = self.atoms.leaves(&x.axes[0]);
        if self.rows_of(&first).is_some_and(|rows| rows.choice == choice && !rows.is_sorted) {
            return Ok(x.clone());
        }
        let chosen = self.atoms.size(self.choices[choice].chosen);
        match *first.as_slice() {
            [b, s, each]
                if [b, s] == [self.batch, self.sequence]
                    && self.atoms.is_spread(each)
                    && self.atoms.size(each) == chosen =>
            {
                self.dispatched(x, choice, false)
            }
            [b, s] if [b, s] == [self.batch, self.sequence] && chosen == 1 => self.dispatched(x, choice, false),
            _ => Err("rows of experts are not the tokens, once for each of their experts".into()),
        }
    }

    /// Rows times a matrix of each expert.
    fn expert_product(
        &mut self,
        x: &Data,
        matrices: &View,
        [experts, input, output]: [Factor; 3],
        choice: usize,
    ) -> Result<Linear, Refusal> {
        if matrices.shift != 0.0 {
            return Err("a matrix that is shifted is multiplied".into());
        }
        self.atoms.unify(&[self.choices[choice].experts], &[experts.0])?;
        self.atoms.unify(&x.axes[1], &[input.0])?;
        Ok(Linear::of_experts(x, matrices, [experts, input, output], self.node))
    }

    /// Products with the matrices of experts, and their biases.
    pub(super) fn with_row_biases(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, Refusal> {
        for (x, other) in [(a, b), (b, a)] {
            let (Form::RowBiases { biases, choice }, Form::Linear(mut product)) = (self.form(other)?, self.form(x)?)
            else {
                continue;
            };
            let rows = product.axes.first().and_then(|axis| self.rows_of(axis));
            let &[experts, (columns, 1)] = biases.dims.as_slice() else { continue };
            if rows.is_none_or(|rows| rows.choice != choice) || biases.shift != 0.0 {
                continue;
            }
            self.atoms.unify(&[self.choices[choice].experts], &[experts.0])?;
            let last = product.axes.last().cloned().unwrap_or_default();
            self.atoms.unify(&last, &[columns])?;
            product.with_row_biases(&biases.tensor, biases.first, experts);
            return Ok(Some(Form::Linear(product)));
        }
        Ok(None)
    }

    /// Rows of experts times the weights of their slots.
    pub(super) fn weighted(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, Refusal> {
        for (x, weights) in [(a, b), (b, a)] {
            let axes = match self.form(x)? {
                Form::Linear(linear) => linear.axes,
                Form::Data(data) => data.axes,
                _ => continue,
            };
            let Some(rows) = axes.first().and_then(|axis| self.rows_of(axis)).filter(|_| axes.len() == 2) else {
                continue;
            };
            let choice = rows.choice;
            let weights = match self.form(weights)? {
                Form::RowWeights { weights, choice: own, is_column: true } if own == choice && rows.is_sorted => {
                    weights
                }
                Form::Data(data)
                    if !rows.is_sorted
                        && data.axes.len() == 2
                        && data.axes[1].is_empty()
                        && self.is_slots(&data.axes[..1], choice) =>
                {
                    data.var
                }
                _ => continue,
            };
            let slots = vec![self.batch, self.sequence, self.choices[choice].chosen];
            let first = if rows.is_sorted { axes[0].clone() } else { slots };
            let rows = self.data(x)?.var;
            return Ok(Some(Form::Weighted(Weighted { choice, rows, weights, axes: vec![first, axes[1].clone()] })));
        }
        Ok(None)
    }

    /// Weighted rows in other axes.
    pub(super) fn arranged_rows(&mut self, node: &'a RecordedNode, weighted: Weighted) -> Result<Form, Refusal> {
        let axes = self.arranged(node, weighted.axes.clone(), false)?;
        Ok(Form::Weighted(Weighted { axes, ..weighted }))
    }

    /// The sum over the experts of each token.
    fn combined_rows(&mut self, weighted: &Weighted, dim: usize) -> Result<Form, Refusal> {
        let Weighted { choice, rows, weights, mut axes } = weighted.clone();
        if self.atoms.leaves(&axes.remove(dim)) != [self.choices[choice].chosen] {
            return Err("rows of experts are summed over other dims than the experts of a token".into());
        }
        let dims = [[self.batch, self.sequence].as_slice(), &self.dims(rows)[1..]].concat();
        if self.atoms.leaves(&axes.concat()) != dims {
            return Err("the sum of experts has other dims than tokens".into());
        }
        let (numbers, weights) = (self.grouped(self.choices[choice].numbers), self.grouped(weights));
        let grouped = self.state(Action::Combine, [rows, numbers, weights].map(Argument::Var).to_vec(), dims.clone());
        let var = self.state(Action::Ungroup, vec![Argument::Var(grouped)], dims);
        Ok(Form::Data(Data { var, axes }))
    }

    /// A sum over axes: of the weights of a token, of what its experts give, or of other values.
    pub(super) fn sum(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let form = self.form(x)?;
        let rank = match &form {
            Form::Weighted(weighted) => weighted.axes.len(),
            _ => self.axes(x)?.len(),
        };
        let call = self.call(node);
        let dims = match node.arg("dim") {
            Some(Arg::Ints(_) | Arg::Int(_)) => call.ints("dim")?,
            _ => (0..rank as i64).collect(),
        };
        let dims = dims.into_iter().map(|dim| crate::eval::wrap(dim, rank)).collect::<Result<Vec<_>, _>>()?;
        let keeps = call.flag("keepdim");
        if let Form::Weighted(weighted) = form {
            return match dims.as_slice() {
                [dim] if !keeps => self.combined_rows(&weighted, *dim),
                _ => Err("a sum of experts keeps its dim".into()),
            };
        }
        let data = self.data(x)?;
        self.reduced(&data, &dims, PartialKind::Sum, keeps).map(Form::Data)
    }
}

fn three(view: &View) -> Result<[Factor; 3], Refusal> {
    <[Factor; 3]>::try_from(view.dims.as_slice()).map_err(|_| "the matrices of experts have no three dims".into())
}
