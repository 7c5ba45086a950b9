//! Attention: as an op, or as scores, their softmax and a product.

use super::mask::{Hides, LOW, Mask};
use super::{Data, Form, Lowering};
use crate::atoms::Axis;
use crate::graph::{RecordedNode, ValueId};
use crate::program::{Action, Argument};
use ir::ops::AttentionSettings;

/// Products of queries and keys, and what was done to them.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    q: Data,
    k: Data,
    scale: f64,
    /// The factor of bounded scores.
    bound: Bound,
    mask: Option<Hides>,
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
    pub(super) fn bounded(self) -> Result<Scores, String> {
        match (self.bound, self.mask) {
            (Bound::None, None) => Ok(Scores { bound: Bound::Open, ..self }),
            _ => Err("scores of attention are bounded twice, or behind their mask".to_string()),
        }
    }

    /// Scores with a mask.
    pub(super) fn masked(self, mask: Hides) -> Result<Scores, String> {
        match self.mask {
            None => Ok(Scores { mask: Some(mask), ..self }),
            Some(_) => Err("scores of attention have two masks".to_string()),
        }
    }
}

impl<'a> Lowering<'a> {
    /// A product of activations and a parameter, of queries and keys, or of shares and values.
    pub(super) fn matmul(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let other = if node.arg("mat2").is_some() { "mat2" } else { "other" };
        let (a, b) = (self.argument(node, "self")?, self.argument(node, other)?);
        if node.family() == "aten.bmm"
            && let Some(product) = self.batched_product(node)?
        {
            return Ok(product);
        }
        if self.known(a).is_some() || self.known(b).is_some() {
            return Err("a constant is multiplied with activations".to_string());
        }
        if let Form::Weight(mut matrix) = self.form(b)? {
            matrix.dims.reverse();
            return self.times(a, &matrix, None);
        }
        if let Form::Shares(scores) = self.form(a)? {
            let Scores { q, k, scale, bound, mask } = scores;
            let v = self.data(b)?;
            let (v, is_joined) = (self.parted(v.clone()), v.axes.len() == 3);
            let softcap = match bound {
                Bound::None => None,
                Bound::By(cap) => Some(cap),
                Bound::Open => return Err("the tangent of scores is not scaled".to_string()),
            };
            let mask = self.mask(mask, false)?;
            let Data { var, mut axes } =
                self.attend([q, k, v], AttentionSettings { softcap, ..mask.settings(scale) })?;
            if is_joined {
                let heads = axes.remove(1);
                axes[0].extend(heads);
            }
            return Ok(Form::Data(Data { var, axes }));
        }
        let ((q, by), (k, times)) = (self.factor(a)?, self.factor(b)?);
        let (q, mut k) = (self.parted(q), self.parted(k));
        if q.axes.len() != 4 || k.axes.len() != 4 {
            return Err("a product of activations that is no attention".to_string());
        }
        k.axes.swap(2, 3);
        Ok(Form::Scores(Scores { q, k, scale: by * times, bound: Bound::None, mask: None }))
    }

    /// A value, and the number that it is multiplied with.
    fn factor(&mut self, x: ValueId) -> Result<(Data, f64), String> {
        match self.form(x)? {
            Form::Scaled { data, by, .. } => Ok((data, by)),
            _ => Ok((self.data(x)?, 1.0)),
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
    pub(super) fn guard(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "self")?;
        let is_lowest = self.call(node).number("other").is_ok_and(|number| number == f64::NEG_INFINITY);
        match (node.family(), self.form(x)?) {
            ("aten.eq", Form::Scores(_)) if is_lowest => Ok(Form::Hidden),
            ("aten.logical_not" | "aten.any", Form::Hidden) => Ok(Form::Hidden),
            ("aten.full_like", Form::Shares(_)) => Ok(Form::Filled),
            _ => Err(format!("there is no op `{}` in this version", node.op)),
        }
    }

    /// Scores of which a mask replaces some by a number: `masked_fill(scores, hidden, -inf)` or `where(visible, scores, -inf)`.
    pub(super) fn replaced_scores(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let is_fill = node.family() == "aten.masked_fill";
        let [mask, number] = if is_fill { ["mask", "value"] } else { ["condition", "other"] };
        let (x, mask) = (self.argument(node, "self")?, self.argument(node, mask)?);
        if !is_fill
            && self.known(mask).is_none()
            && matches!((self.form(mask)?, self.form(x)?), (Form::Hidden, Form::Filled))
        {
            let shares = self.argument(node, "other")?;
            return self.form(shares);
        }
        let Form::Scores(scores) = self.form(x)? else {
            return Err("activations are replaced that are no scores of attention".to_string());
        };
        if self.known(mask).is_none() || self.call(node).operand(number)?.number().is_none_or(|number| number > LOW) {
            return Err("scores of attention are replaced by others than the lowest".to_string());
        }
        scores.masked(Hides { value: mask, is_set: is_fill }).map(Form::Scores)
    }

    pub(super) fn softmax(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "self")?;
        let scores = match self.form(x)? {
            Form::Scores(scores) => scores,
            form => return self.router_softmax(node, form),
        };
        if !matches!(self.call(node).int_or("dim", -1)?, -1 | 3) {
            return Err("a softmax of other scores than a query's".to_string());
        }
        Ok(Form::Shares(scores))
    }

    pub(super) fn scaled_attention(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let [q, k, v] = ["query", "key", "value"].map(|name| self.argument(node, name));
        let (q, k, v) = (self.data(q?)?, self.data(k?)?, self.data(v?)?);
        let call = self.call(node);
        if call.number_or("dropout_p", 0.0)? != 0.0 {
            return Err("dropout is active; export the model in evaluation mode: model.eval()".to_string());
        }
        let width = q.axes.last().map_or(1, |last| self.atoms.total(last));
        let scale = call.number_or("scale", 1.0 / (width as f64).sqrt())?;
        let is_causal = call.flag("is_causal");
        let mask = node.arg("attn_mask").map(|_| self.argument(node, "attn_mask")).transpose()?;
        let mask = mask.map(|value| Hides { value, is_set: false });
        let mask = self.mask(mask, is_causal)?;
        self.attend([q, k, v], mask.settings(scale)).map(Form::Data)
    }

    /// The statement of an attention, whose operands have the axes batch, heads, tokens and elements.
    fn attend(&mut self, [q, k, v]: [Data; 3], settings: AttentionSettings) -> Result<Data, String> {
        if [&q, &k, &v].iter().any(|data| data.axes.len() != 4) {
            return Err("attention must have operands of four dims".to_string());
        }
        for data in [&q, &k, &v] {
            let outer = [0, 2].map(|axis| self.atoms.leaves(&data.axes[axis]));
            if outer != [[self.batch], [self.sequence]] {
                return Err("attention of other dims than batch, heads, tokens and elements".to_string());
            }
        }
        self.atoms.unify(&q.axes[3], &k.axes[3])?;
        let groups = self.groups(&k)?;
        let values = self.groups(&v)?;
        self.atoms.unify(&groups, &values)?;
        self.heads(&q.axes[1], &groups)?;
        let settings = AttentionSettings { scale: inverse_root(settings.scale), ..settings };
        let elements = self.atoms.leaves(&v.axes[3]);
        let heads = self.atoms.leaves(&q.axes[1]);
        let dims = [vec![self.batch, self.sequence], heads.clone(), elements.clone()].concat();
        let axes = vec![vec![self.batch], heads, vec![self.sequence], elements];
        let inputs = [Argument::Positions, Argument::Positions, Argument::Segments, Argument::Segments];
        let operands = [q.var, k.var, v.var].map(Argument::Var).into_iter().chain(inputs).collect();
        let var = self.state(Action::Attention(settings), operands, dims);
        Ok(Data { var, axes })
    }

    /// The heads of keys or values, without the repeats for several query heads.
    fn groups(&self, data: &Data) -> Result<Axis, String> {
        let mut leaves = self.atoms.leaves(&data.axes[1]);
        if leaves.last().is_some_and(|&last| self.atoms.is_spread(last)) {
            leaves.pop();
        }
        if leaves.iter().any(|&leaf| self.atoms.is_spread(leaf)) {
            return Err("heads of keys and values are repeated in another order than query heads".to_string());
        }
        Ok(leaves)
    }

    /// Splits query heads into those of each key head.
    fn heads(&mut self, heads: &[crate::atoms::Atom], groups: &[crate::atoms::Atom]) -> Result<(), String> {
        let leaves = self.atoms.leaves(heads);
        let (all, count) = (self.atoms.total(&leaves), self.atoms.total(groups).max(1));
        if !all.is_multiple_of(count) {
            return Err(format!("{all} query heads do not go with {count} key heads"));
        }
        match *leaves.as_slice() {
            [one] => {
                if groups.contains(&one) {
                    return Err("queries and keys are the same projection".to_string());
                }
                let parts = self.atoms.split(one, &[count, all / count])?;
                self.atoms.unify(groups, &parts[..1])
            }
            [group, _] => self.atoms.unify(groups, &[group]),
            _ => Err("query heads have more than two dims".to_string()),
        }
    }

    fn mask(&self, mask: Option<Hides>, is_causal: bool) -> Result<Mask, String> {
        match (mask, is_causal) {
            (None, is_causal) => Ok(Mask { is_causal, window: None }),
            (Some(_), true) => Err("attention is causal and has a mask".to_string()),
            (Some(mask), false) => self.read_mask(mask),
        }
    }
}

/// The inverse root of an integer as this program rounds it, if the number is one but for rounding.
fn inverse_root(scale: f64) -> f64 {
    let nearest = 1.0 / (1.0 / (scale * scale)).round().sqrt();
    if (nearest - scale).abs() <= 4.0 * f64::EPSILON * scale.abs() { nearest } else { scale }
}
