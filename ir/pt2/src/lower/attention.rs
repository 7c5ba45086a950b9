//! Attention: as an op, or as scores, their softmax and a product.

use super::choose::ValueOrNumber;
use super::mask::{Hides, LOW, Mask, is_lean};
use super::{Data, Form, Lowering};
use crate::atoms::{Atom, Axis};
use crate::graph::{RecordedNode, ValueId};
use crate::program::{Action, Argument, Lean, Var};
use crate::refusal::{Refusal, contradiction};
use ir::models::Alibi;
use ir::ops::{AttentionSettings, UnaryKind};
use ir::types::PartialKind;

/// Products of queries and keys, and what was done to them.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    q: Data,
    k: Data,
    scale: f64,
    /// The factor of bounded scores.
    bound: Bound,
    masks: Vec<Hides>,
    /// The slopes of heads times the positions of keys are added.
    is_leaning: bool,
    /// A further score of each head, of nothing.
    sink: Option<ValueId>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Bound {
    None,
    /// The tangent of scores, which is not yet scaled.
    Open,
    By(f64),
}

impl Scores {
    /// Scores times a factor, stated as `number` if `is_product`, else as its inverse.
    pub(super) fn scaled(mut self, by: f64, is_product: bool, number: f64) -> Scores {
        match self.bound {
            Bound::None => self.scale *= by,
            Bound::Open => {
                let cap = if is_product { number } else { by };
                (self.bound, self.scale) = (Bound::By(cap), self.scale * cap);
            }
            Bound::By(cap) => self.bound = Bound::By(cap * by),
        }
        self
    }

    /// The tangent of scores.
    pub(super) fn bounded(self) -> Result<Scores, Refusal> {
        if self.bound == Bound::None && self.masks.is_empty() {
            return Ok(Scores { bound: Bound::Open, ..self });
        }
        Err("scores of attention are bounded twice, or behind their mask".into())
    }

    /// Scores with a mask.
    pub(super) fn masked(mut self, mask: Hides) -> Scores {
        self.masks.push(mask);
        self
    }
}

/// The values that an attention reads.
struct Heads {
    q: Data,
    k: Data,
    v: Data,
    sink: Option<Data>,
}

impl<'a> Lowering<'a> {
    /// A product of activations and a parameter, of queries and keys, or of shares and values.
    pub(super) fn matmul(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let other = if node.arg("mat2").is_some() { "mat2" } else { "other" };
        let (a, b) = (self.argument(node, "self")?, self.argument(node, other)?);
        if node.family() == "aten.bmm"
            && let Some(product) = self.batched_product(node)?
        {
            return Ok(product);
        }
        if self.known(a).is_some() || self.known(b).is_some() {
            return Err("a constant is multiplied with activations".into());
        }
        if let Form::Weight(mut matrix) = self.form(b)?
            && matrix.dims.len() == 2
        {
            matrix.dims.reverse();
            return self.times(a, &matrix, None);
        }
        if let Form::Shares(scores) = self.form(a)? {
            return self.shared(scores, b).map(Form::Data);
        }
        self.scores(a, b, 1.0)
    }

    /// `beta bias + alpha q k`, with a known bias.
    pub(super) fn biased_scores(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let [bias, a, b] = ["self", "batch1", "batch2"].map(|name| self.argument(node, name));
        let call = self.call(node);
        let (alpha, beta) = (call.number_or("alpha", 1.0)?, call.number_or("beta", 1.0)?);
        if beta != 1.0 {
            return Err("a bias of scores has a factor".into());
        }
        let bias = bias?;
        match self.scores(a?, b?, alpha)? {
            Form::Scores(scores) if self.known(bias).is_some() => self.scores_plus(scores, bias).map(Form::Scores),
            _ => Err("a product of activations with a bias is no attention".into()),
        }
    }

    /// The product of queries and keys, or of other activations.
    fn scores(&mut self, a: ValueId, b: ValueId, by: f64) -> Result<Form, Refusal> {
        let (q, k) = (self.factor(a)?, self.factor(b)?);
        let by = by * q.by * k.by;
        let (q, mut k) = (self.parted(q.data), self.parted(k.data));
        let is_tokens = |data: &Data, axis: usize| self.atoms.leaves(&data.axes[axis]) == [self.sequence];
        let is_attention = q.axes.len() == 4 && k.axes.len() == 4 && is_tokens(&q, 2) && is_tokens(&k, 3);
        if !is_attention {
            let product = self.product_of(&q, &k)?;
            return Ok(Form::Data(if by == 1.0 { product } else { self.unary(UnaryKind::Scale(by), &product) }));
        }
        k.axes.swap(2, 3);
        let bound = Bound::None;
        Ok(Form::Scores(Scores { q, k, scale: by, bound, masks: Vec::new(), is_leaning: false, sink: None }))
    }

    /// The product of activations: sums over the last axis of one and the last but one of the other.
    fn product_of(&mut self, a: &Data, b: &Data) -> Result<Data, Refusal> {
        let (&[ref left @ .., _, _], &[ref right @ .., _, _]) = (a.axes.as_slice(), b.axes.as_slice()) else {
            return Err("a product with a vector of activations".into());
        };
        let (rows, inner) = (a.axes[left.len()].clone(), a.axes[left.len() + 1].clone());
        let (other, columns) = (b.axes[right.len()].clone(), b.axes[right.len() + 1].clone());
        self.atoms.unify(&inner, &other)?;
        if left.len() != right.len() {
            return Err("a product of activations of different dims".into());
        }
        for (left, right) in left.iter().zip(right) {
            self.atoms.unify(left, right)?;
        }
        let outer = self.atoms.leaves(&left.concat());
        let [rows_of, inner, columns_of] = [&rows, &inner, &columns].map(|axis| self.atoms.leaves(axis));
        if rows_of.iter().any(|leaf| columns_of.contains(leaf)) {
            return Err("a product of activations that is no attention".into());
        }
        let [a_dims, b_dims] = [[&outer[..], &rows_of, &inner].concat(), [&outer[..], &inner, &columns_of].concat()];
        let (a, b) = (self.with_dims(a.var, &a_dims), self.with_dims(b.var, &b_dims));
        let dims = [&outer[..], &rows_of, &columns_of].concat();
        let var = self.state(Action::Product, [a, b].map(Argument::Var).to_vec(), dims);
        Ok(Data { var, axes: left.iter().cloned().chain([rows, columns]).collect() })
    }

    /// The values of keys by the softmax of scores.
    fn shared(&mut self, scores: Scores, values: ValueId) -> Result<Data, Refusal> {
        let v = self.data(values)?;
        let (v, is_joined) = (self.parted(v.clone()), v.axes.len() == 3);
        let softcap = match scores.bound {
            Bound::None => None,
            Bound::By(cap) => Some(cap),
            Bound::Open => return Err("the tangent of scores is not scaled".into()),
        };
        let mask = self.mask(&scores.masks, false)?;
        let settings = AttentionSettings { softcap, ..mask.settings(scores.scale) };
        let sink = scores.sink.map(|sink| self.data(sink)).transpose()?;
        let mut heads = Heads { q: scores.q, k: scores.k, v, sink };
        if scores.is_leaning {
            self.lean(&mut heads, settings.scale)?;
        }
        let Data { var, mut axes } = self.attend(heads, settings)?;
        if is_joined {
            let heads = axes.remove(1);
            axes[0].extend(heads);
        }
        Ok(Data { var, axes })
    }

    /// A value, and the number that it is multiplied with.
    fn factor(&mut self, x: ValueId) -> Result<Factored, Refusal> {
        match self.form(x)? {
            Form::Scaled { data, by, .. } => Ok(Factored { data, by }),
            _ => Ok(Factored { data: self.data(x)?, by: 1.0 }),
        }
    }

    /// A value whose first axis joins the batch and the heads, with an axis for each.
    fn parted(&self, Data { var, mut axes }: Data) -> Data {
        if axes.len() == 3 && self.atoms.leaves(&axes[0]).first() == Some(&self.batch) {
            let heads = self.atoms.leaves(&axes[0]).split_off(1);
            axes.splice(..1, [vec![self.batch], heads]);
        }
        Data { var, axes }
    }

    /// Nodes that replace rows of shares whose keys are all hidden: `where(!any(scores != -inf), 0, shares)`.
    pub(super) fn guard(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let is_lowest = self.call(node).number("other").is_ok_and(|number| number == f64::NEG_INFINITY);
        match (node.family(), self.form(x)?) {
            ("aten.eq", Form::Scores(_)) if is_lowest => Ok(Form::Hidden),
            ("aten.logical_not" | "aten.any", Form::Hidden) => Ok(Form::Hidden),
            ("aten.full_like", Form::Shares(_)) => Ok(Form::Filled),
            _ => Err(Refusal::UnknownOp(node.op.clone())),
        }
    }

    /// Scores of which a mask replaces some by a number: `masked_fill(scores, hidden, -inf)` or `where(visible, scores, -inf)`.
    pub(super) fn replaced_scores(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let is_fill = node.family() == "aten.masked_fill";
        let [mask, number] = if is_fill { ["mask", "value"] } else { ["condition", "other"] };
        let (x, mask) = (self.argument(node, "self")?, self.argument(node, mask)?);
        let other = self.side(node, number)?;
        if self.known(mask).is_none() {
            if !is_fill && matches!((self.form(mask)?, self.form(x)?), (Form::Hidden, Form::Filled)) {
                let shares = self.argument(node, "other")?;
                return self.form(shares);
            }
            if is_fill && let Some(limited) = self.limited(x, mask, other)? {
                return Ok(limited);
            }
            let sides = if is_fill { [other, ValueOrNumber::Value(x)] } else { [self.side(node, "self")?, other] };
            return self.selected(mask, sides);
        }
        let Form::Scores(scores) = self.form(x)? else {
            return Err("activations are replaced that are no scores of attention".into());
        };
        if self.call(node).operand(number)?.number().is_none_or(|number| number > LOW) {
            return Err("scores of attention are replaced by others than the lowest".into());
        }
        Ok(Form::Scores(scores.masked(Hides { value: mask, is_set: is_fill })))
    }

    /// Scores and a known tensor: a mask, or slopes of heads times positions of keys.
    pub(super) fn scores_plus(&mut self, scores: Scores, table: ValueId) -> Result<Scores, Refusal> {
        let known = self.known(table).ok_or("scores of attention meet what is no tensor")?;
        if known.data.iter().all(|&x| x == 0.0 || x < LOW) {
            return Ok(scores.masked(Hides { value: table, is_set: false }));
        }
        let heads = self.atoms.total(&scores.q.axes[1]);
        let tokens = self.atoms.size(self.sequence);
        let slopes = Alibi { heads, kv_heads: heads, scale: 1.0 }.slopes();
        if scores.is_leaning || scores.bound != Bound::None || !is_lean(known, &slopes, tokens as usize) {
            return Err("scores of attention have an unknown bias".into());
        }
        Ok(Scores { is_leaning: true, ..scores })
    }

    /// Scores and the sink of each head, one after the other along the keys.
    pub(super) fn with_sink(&mut self, scores: ValueId, sink: ValueId) -> Result<Option<Form>, Refusal> {
        if self.known[scores.index()].is_some() {
            return Ok(None);
        }
        match self.form(scores)? {
            Form::Scores(own) if own.sink.is_none() => Ok(Some(Form::Scores(Scores { sink: Some(sink), ..own }))),
            _ => Ok(None),
        }
    }

    /// The maximum of scores of attention, which their softmax may go without; or of other values.
    pub(super) fn maximum(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, Refusal> {
        let x = self.argument(node, "self")?;
        if matches!(self.form(x)?, Form::Scores(_)) {
            return Ok(vec![Form::RowMaximum(x), Form::Refused(PLACES)]);
        }
        let x = self.data(x)?;
        let call = self.call(node);
        let rank = x.axes.len();
        let dims = if node.arg("dim").is_some() { call.ints("dim")? } else { (0..rank as i64).collect() };
        let axes = dims.into_iter().map(|dim| crate::eval::wrap(dim, rank)).collect::<Result<Vec<_>, _>>()?;
        let keeps = call.flag("keepdim");
        let data = self.reduced(&x, &axes, PartialKind::Max, keeps)?;
        Ok(vec![Form::Data(data), Form::Refused(PLACES)])
    }

    /// The difference of scores and their maximum: their softmax is the same.
    pub(super) fn less_maximum(&mut self, x: ValueId, maximum: ValueId) -> Result<Option<Form>, Refusal> {
        match self.form(maximum)? {
            Form::RowMaximum(of) if of == x => self.form(x).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn softmax(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let Form::Scores(scores) = self.form(x)? else { return self.softmax_of_rows(node, x) };
        if !matches!(self.call(node).int_or("dim", -1)?, -1 | 3) {
            return Err("a softmax of other scores than a query's".into());
        }
        Ok(Form::Shares(scores))
    }

    /// Two more elements of queries and keys, whose products are slopes times positions.
    fn lean(&mut self, heads: &mut Heads, scale: f64) -> Result<(), Refusal> {
        let counts = [&heads.q, &heads.k].map(|data| self.atoms.total(&self.groups(data).unwrap_or_default()));
        for (data, is_query) in [(&mut heads.q, true), (&mut heads.k, false)] {
            let last = data.axes.last().map(|axis| self.atoms.leaves(axis)).unwrap_or_default();
            let mut dims = self.dims(data.var);
            if !dims.ends_with(&last) || last.len() != 1 {
                return Err("queries and keys with biases by distance are no heads".into());
            }
            let width = self.atoms.add(self.atoms.size(last[0]) + 2);
            dims.pop();
            dims.push(width);
            let lean = Lean { scale, heads: counts, is_query };
            let var = self.state(Action::Lean(lean), vec![Argument::Var(data.var), Argument::Positions], dims);
            data.var = var;
            data.axes[3] = vec![width];
        }
        Ok(())
    }

    pub(super) fn scaled_attention(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let [q, k, v] = ["query", "key", "value"].map(|name| self.argument(node, name));
        let (q, k) = self.queries_and_keys(q?, k?)?;
        let v = self.data(v?)?;
        let call = self.call(node);
        if call.number_or("dropout_p", 0.0)? != 0.0 {
            return Err(Refusal::Dropout);
        }
        let width = q.axes.last().map_or(1, |last| self.atoms.total(last));
        let scale = call.number_or("scale", 1.0 / (width as f64).sqrt())?;
        let is_causal = call.flag("is_causal");
        let mask = node.arg("attn_mask").map(|_| self.argument(node, "attn_mask")).transpose()?;
        let masks: Vec<Hides> = mask.map(|value| Hides { value, is_set: false }).into_iter().collect();
        let mask = self.mask(&masks, is_causal)?;
        self.attend(Heads { q, k, v, sink: None }, mask.settings(scale)).map(Form::Data)
    }

    /// Queries and keys. Elements of both that are in the same other order stay so: their products are the same.
    fn queries_and_keys(&mut self, q: ValueId, k: ValueId) -> Result<(Data, Data), Refusal> {
        match (self.settled(q)?, self.settled(k)?) {
            (Form::Adjacent(left, order), Form::Adjacent(right, other)) if order == other => Ok((left, right)),
            _ => Ok((self.data(q)?, self.data(k)?)),
        }
    }

    /// The statement of an attention, whose operands have the axes batch, heads, tokens and elements.
    fn attend(&mut self, heads: Heads, settings: AttentionSettings) -> Result<Data, Refusal> {
        let Heads { mut q, mut k, mut v, sink } = heads;
        if [&q, &k, &v].iter().any(|data| data.axes.len() != 4) {
            return Err("attention must have operands of four dims".into());
        }
        for data in [&mut q, &mut k, &mut v] {
            if self.atoms.leaves(&data.axes[3]).len() != 1 {
                *data = self.with_axis(data, 3);
            }
        }
        let of = |data: &Data, axis: usize| self.atoms.leaves(&data.axes[axis]);
        let (queries, keys) = (of(&q, 2), of(&k, 2));
        let (&[from], &[to]) = (queries.as_slice(), keys.as_slice()) else { return Err(ODD.into()) };
        if [&q, &k, &v].iter().any(|data| of(data, 0) != [self.batch]) || of(&v, 2) != [to] {
            return Err(ODD.into());
        }
        self.atoms.unify(&q.axes[3], &k.axes[3])?;
        let (mut groups, mut values) = (self.groups(&k)?, self.groups(&v)?);
        if self.atoms.total(&groups) != self.atoms.total(&values) {
            // One of the two is repeated for each query head, the other is so of itself.
            groups = self.atoms.leaves(&k.axes[1]);
            values = self.atoms.leaves(&v.axes[1]);
        }
        self.atoms.unify(&groups, &values)?;
        if groups.is_empty() {
            groups = vec![self.atoms.add(1)];
        }
        self.heads(&q.axes[1], &groups)?;
        let settings = AttentionSettings { scale: inverse_root(settings.scale), ..settings };
        let groups = self.atoms.leaves(&groups);
        let heads = self.atoms.leaves(&q.axes[1]);
        let elements = self.atoms.leaves(&v.axes[3]);
        let width = self.atoms.leaves(&q.axes[3]);
        let q = self.with_dims(q.var, &[&[self.batch, from], heads.as_slice(), &width].concat());
        let [k, v] = [(k, &width), (v, &elements)]
            .map(|(data, row)| self.of_groups(data.var, &[&[self.batch, to], groups.as_slice(), row].concat()));
        let mut operands = [q, k, v].map(Argument::Var).to_vec();
        operands.extend(self.places(from, to));
        if let Some(sink) = sink {
            let axis = sink.axes.get(1).cloned().unwrap_or_default();
            self.atoms.unify(&heads, &axis)?;
            operands.push(Argument::Var(self.with_dims(sink.var, &heads)));
        }
        let dims = [vec![self.batch, from], heads.clone(), elements.clone()].concat();
        let axes = vec![vec![self.batch], heads, vec![from], elements];
        let var = self.state(Action::Attention(settings), operands, dims);
        Ok(Data { var, axes })
    }

    /// Keys or values with a dim for their heads, also if there is one.
    fn of_groups(&mut self, var: Var, dims: &[Atom]) -> Var {
        let own = self.dims(var);
        let rest: Vec<Atom> =
            dims.iter().copied().filter(|dim| own.contains(dim) || self.atoms.size(*dim) > 1).collect();
        let var = self.with_dims(var, &rest);
        if rest.len() == dims.len() { var } else { self.reshaped(var, dims.to_vec()) }
    }

    /// Positions and segments of queries and keys. Where both are the tokens of the batch these are inputs; else they count.
    fn places(&mut self, from: Atom, to: Atom) -> [Argument; 4] {
        if from == to && to == self.sequence && self.graph.is_text() {
            return [Argument::Positions, Argument::Positions, Argument::Segments, Argument::Segments];
        }
        let [from, to] = [from, to].map(|tokens| {
            let dims = vec![self.batch, tokens];
            let positions = self.state(Action::Index { dim: 1 }, Vec::new(), dims.clone());
            let one = self.atoms.add(1);
            let zeros = self.state(Action::Index { dim: 2 }, Vec::new(), [dims.as_slice(), &[one]].concat());
            [positions, self.reshaped(zeros, dims)].map(Argument::Var)
        });
        [from[0], to[0], from[1], to[1]]
    }

    /// The heads of keys or values, without the repeats for several query heads.
    fn groups(&self, data: &Data) -> Result<Axis, Refusal> {
        let own = self.dims(data.var);
        let mut leaves = self.atoms.leaves(&data.axes[1]);
        while leaves.last().is_some_and(|last| !own.contains(last)) {
            leaves.pop();
        }
        if leaves.iter().any(|leaf| !own.contains(leaf)) {
            return Err("heads of keys and values are repeated in another order than query heads".into());
        }
        Ok(leaves)
    }

    /// Splits query heads into those of each key head.
    fn heads(&mut self, heads: &[crate::atoms::Atom], groups: &[crate::atoms::Atom]) -> Result<(), Refusal> {
        let leaves = self.atoms.leaves(heads);
        let (all, count) = (self.atoms.total(&leaves), self.atoms.total(groups).max(1));
        if !all.is_multiple_of(count) {
            return Err(contradiction(format!("{all} query heads do not go with {count} key heads")));
        }
        match *leaves.as_slice() {
            [one] => {
                if groups.contains(&one) {
                    return Err("queries and keys are the same projection".into());
                }
                let parts = self.atoms.split(one, &[count, all / count])?;
                self.atoms.unify(groups, &parts[..1])
            }
            [group, _] => self.atoms.unify(groups, &[group]),
            _ => Err("query heads have more than two dims".into()),
        }
    }

    /// The keys that queries see under all masks.
    fn mask(&self, masks: &[Hides], is_causal: bool) -> Result<Mask, Refusal> {
        let mut all = Mask { is_causal, window: None };
        for &mask in masks {
            all = all.and(self.read_mask(mask)?);
        }
        Ok(all)
    }
}

/// A value and its factor.
struct Factored {
    data: Data,
    by: f64,
}

const ODD: &str = "attention of other dims than batch, heads, tokens and elements";
const PLACES: &str = "the places of maxima are read";

/// The inverse root of an integer as this program rounds it, if the number is one but for rounding.
fn inverse_root(scale: f64) -> f64 {
    let nearest = 1.0 / (1.0 / (scale * scale)).round().sqrt();
    if (nearest - scale).abs() <= 4.0 * f64::EPSILON * scale.abs() { nearest } else { scale }
}
