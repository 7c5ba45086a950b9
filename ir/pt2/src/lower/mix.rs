//! Elements of a value that are mixed along its last axes: each new element is a sum of old ones, times numbers that may depend on the token.
//!
//! Graphs spell rotary positions in many ways: halves or neighbours, sums or differences, concatenations, stacks or complex numbers. All are
//! such mixtures, which views, sums and products with tables keep. What a mixture means is decided when it is read: see [`super::rope`].

use super::linear::Linear;
use super::movement::Range;
use super::{Data, Form, Lowering};
use crate::atoms::Axis;
use crate::eval::{Item, Tensor};
use crate::graph::{RecordedNode, ValueId};
use crate::refusal::{Refusal, contradiction};
use std::rc::Rc;

/// The longest row whose elements are followed one by one.
const LONGEST: u64 = 4096;

const UNKNOWN_TABLE: &str = "complex numbers are multiplied with an unknown table";

/// An old element, and what it is multiplied with.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Term {
    pub(super) source: usize,
    /// One number, or one for each token.
    pub(super) factor: Rc<[f64]>,
}

/// A mixture.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mix {
    /// The value whose last axes are mixed.
    pub(super) of: ValueId,
    /// The number of those axes.
    pub(super) depth: usize,
    /// The sizes of the axes in their place.
    pub(super) inner: Vec<u64>,
    /// The new elements in row-major order.
    pub(super) elements: Vec<Vec<Term>>,
    /// The node that completes it.
    pub(super) node: usize,
}

impl Mix {
    fn with(&self, inner: Vec<u64>, elements: Vec<Vec<Term>>, node: usize) -> Mix {
        Mix { of: self.of, depth: self.depth, inner, elements, node }
    }

    /// Each element times a factor of its place.
    fn times(&self, node: usize, factor: impl Fn(usize) -> Rc<[f64]>) -> Mix {
        let scaled = self.elements.iter().enumerate().map(|(at, terms)| {
            let by = factor(at);
            terms.iter().map(|term| Term { source: term.source, factor: product(&term.factor, &by) }).collect()
        });
        self.with(self.inner.clone(), scaled.collect(), node)
    }

    /// Elements along the last axis.
    pub(super) fn part(&self, Range { start, length, step }: Range, node: usize) -> Mix {
        let width = self.inner.last().map_or(1, |&size| size as usize);
        let places = (0..length as usize).map(|at| start as usize + at * step as usize).collect::<Vec<_>>();
        let rows = self.elements.chunks(width.max(1));
        let elements = rows.flat_map(|row| places.iter().map(|&at| row[at].clone())).collect();
        let mut inner = self.inner.clone();
        if let Some(last) = inner.last_mut() {
            *last = length;
        }
        self.with(inner, elements, node)
    }

    /// The sum with another mixture of the same value, or the difference.
    fn plus(&self, other: &Mix, sign: f64, node: usize) -> Option<Mix> {
        if (self.of, self.depth, &self.inner) != (other.of, other.depth, &other.inner) {
            return None;
        }
        let sums = self.elements.iter().zip(&other.elements).map(|(own, other)| {
            let mut terms = own.clone();
            for term in other {
                let factor = product(&term.factor, &[sign]);
                match terms.iter_mut().find(|own| own.source == term.source) {
                    Some(own) => own.factor = elementwise(&own.factor, &factor, |a, b| a + b),
                    None => terms.push(Term { source: term.source, factor }),
                }
            }
            terms
        });
        Some(self.with(self.inner.clone(), sums.collect(), node))
    }
}

fn product(a: &[f64], b: &[f64]) -> Rc<[f64]> {
    elementwise(a, b, |a, b| a * b)
}

fn elementwise(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Rc<[f64]> {
    (0..a.len().max(b.len())).map(|at| f(a[at % a.len()], b[at % b.len()])).collect()
}

impl<'a> Lowering<'a> {
    /// A value as a mixture, if it can be one.
    pub(super) fn mixed(&mut self, value: ValueId) -> Result<Option<Mix>, Refusal> {
        let value = self.id(value);
        if self.known[value.index()].is_some() {
            return Ok(None);
        }
        match self.form(value)? {
            Form::Mix(mix) => Ok(Some(mix)),
            Form::Part { of, range } => {
                let mix = self.mixed(of)?.filter(|mix| !mix.inner.is_empty());
                Ok(mix.map(|mix| mix.part(range, self.node)))
            }
            Form::Negated(x) => Ok(self.mixed(x)?.map(|mix| mix.times(self.node, |_| Rc::from([-1.0])))),
            Form::Data(_) | Form::Linear(_) | Form::Normed(_) | Form::Scaled { .. } | Form::Adjacent(..) => {
                self.whole(value, 1)
            }
            _ => Ok(None),
        }
    }

    /// A value as the mixture of its own elements.
    fn whole(&mut self, value: ValueId, depth: usize) -> Result<Option<Mix>, Refusal> {
        let axes = self.axes(value)?;
        if axes.len() <= depth {
            return Ok(None);
        }
        let inner: Vec<u64> = axes[axes.len() - depth..].iter().map(|axis| self.atoms.total(axis)).collect();
        let count: u64 = inner.iter().product();
        if count > LONGEST {
            return Ok(None);
        }
        let elements = (0..count as usize).map(|source| vec![Term { source, factor: Rc::from([1.0]) }]);
        Ok(Some(Mix { of: value, depth, inner, elements: elements.collect(), node: self.node }))
    }

    /// The axes of a mixture.
    pub(super) fn mixed_axes(&mut self, mix: &Mix) -> Result<Vec<Axis>, Refusal> {
        let mut axes = self.axes(mix.of)?;
        axes.truncate(axes.len() - mix.depth);
        axes.extend(mix.inner.iter().map(|&size| vec![self.atoms.add(size)]));
        Ok(axes)
    }

    /// The number of axes before those that are mixed.
    fn lead(&mut self, mix: &Mix) -> Result<usize, Refusal> {
        Ok(self.axes(mix.of)?.len() - mix.depth)
    }

    /// A mixture or a part of a value times a table of numbers.
    pub(super) fn mixed_by_table(&mut self, x: ValueId, table: ValueId) -> Result<Option<Form>, Refusal> {
        if let Form::Complex(mix) = self.form(x)? {
            return self.turned_numbers(&mix, table).map(Some);
        }
        let Some(mix) = self.mixed(x)? else { return Ok(None) };
        let Some(table) = self.known(table).cloned() else { return Ok(None) };
        let Some(factors) = self.factors(&mix, &table, mix.inner.len())? else { return Ok(None) };
        Ok(Some(Form::Mix(mix.times(self.node, |at| factors[at].clone()))))
    }

    /// The numbers of a table for each element of a mixture: one, or one for each token. None if they depend on anything else.
    fn factors(&mut self, mix: &Mix, table: &Tensor, trailing: usize) -> Result<Option<Vec<Rc<[f64]>>>, Refusal> {
        let lead = self.lead(mix)?;
        let rank = lead + trailing;
        let axes = self.axes(mix.of)?;
        let sequence = axes[..lead].iter().position(|axis| self.atoms.leaves(axis) == [self.sequence]);
        let Some(skipped) = rank.checked_sub(table.sizes.len()) else { return Ok(None) };
        let size = |d: usize| d.checked_sub(skipped).map_or(1, |d| table.sizes[d]);
        let has_others = (0..lead).any(|d| size(d) != 1 && Some(d) != sequence && d != 0);
        let is_wider = (0..trailing).any(|d| ![1, mix.inner[d]].contains(&(size(lead + d) as u64)));
        if has_others || is_wider || table.sizes.contains(&0) {
            return Ok(None);
        }
        let tokens = sequence.map_or(1, size);
        let count: u64 = mix.inner[..trailing].iter().product();
        let mut factors = Vec::new();
        for at in 0..count as usize {
            let mut index = vec![0; rank];
            let mut rest = at;
            for d in (0..trailing).rev() {
                let size = mix.inner[d] as usize;
                index[lead + d] = rest % size;
                rest /= size;
            }
            let mut row = Vec::new();
            for token in 0..tokens {
                if let Some(sequence) = sequence {
                    index[sequence] = token;
                }
                let own = table.spread(&index);
                // Sequences of a batch have the same positions.
                if sequence != Some(0) && size(0) > 1 {
                    index[0] = size(0) - 1;
                    if table.spread(&index) != own {
                        return Ok(None);
                    }
                    index[0] = 0;
                }
                row.push(own);
            }
            factors.push(row.into());
        }
        Ok(Some(factors))
    }

    /// The sum or the difference of two mixtures, if both are of one value.
    pub(super) fn mixed_sum(&mut self, a: ValueId, b: ValueId, sign: f64) -> Result<Option<Form>, Refusal> {
        let is_mix = |form: &Form| matches!(form, Form::Mix(_));
        if !is_mix(&self.form(a)?) && !is_mix(&self.form(b)?) {
            return Ok(None);
        }
        let (Some(a), Some(b)) = (self.mixed(a)?, self.mixed(b)?) else { return Ok(None) };
        Ok(a.plus(&b, sign, self.node).map(Form::Mix))
    }

    /// Parts of one value, one after the other along the last axis, or side by side along a new one behind it.
    pub(super) fn mixed_join(&mut self, parts: &[ValueId], is_stack: bool) -> Result<Option<Form>, Refusal> {
        let mut mixes = Vec::new();
        for &part in parts {
            let is_part = self.known[self.id(part).index()].is_none()
                && matches!(self.form(part)?, Form::Mix(_) | Form::Part { .. } | Form::Negated(_));
            let Some(mix) = self.mixed(part)?.filter(|_| is_part) else { return Ok(None) };
            mixes.push(mix);
        }
        let Some(first) = mixes.first().cloned() else { return Ok(None) };
        let outer = |mix: &Mix| mix.inner[..mix.inner.len() - 1].to_vec();
        let fits = |mix: &&Mix| {
            (mix.of, mix.depth) == (first.of, first.depth)
                && !mix.inner.is_empty()
                && if is_stack { mix.inner == first.inner } else { outer(mix) == outer(&first) }
        };
        if !mixes.iter().all(|mix| fits(&mix)) {
            return Ok(None);
        }
        let width = |mix: &Mix| if is_stack { 1 } else { mix.inner.last().map_or(1, |&size| size as usize) };
        let rows = first.elements.len() / width(&first).max(1);
        let elements = (0..rows)
            .flat_map(|at: usize| {
                mixes.iter().flat_map(move |mix| mix.elements[at * width(mix)..(at + 1) * width(mix)].iter().cloned())
            })
            .collect();
        let inner = if is_stack {
            [first.inner.as_slice(), &[mixes.len() as u64]].concat()
        } else {
            [outer(&first), vec![mixes.iter().map(|mix| width(mix) as u64).sum()]].concat()
        };
        Ok(Some(Form::Mix(first.with(inner, elements, self.node))))
    }

    /// A view that changes the mixed axes alone.
    pub(super) fn mixed_view(&mut self, node: &'a RecordedNode, mix: &Mix) -> Result<Option<Form>, Refusal> {
        let before: Vec<Axis> = self.mixed_axes(mix)?;
        let lead = self.lead(mix)?;
        let Ok(after) = self.arranged(node, before.clone(), false) else { return Ok(None) };
        let is_order = matches!(node.family(), "aten.transpose" | "aten.permute" | "aten.t");
        if is_order
            || after.len() < lead
            || !(0..lead).all(|d: usize| self.atoms.leaves(&after[d]) == self.atoms.leaves(&before[d]))
        {
            return Ok(None);
        }
        let inner: Vec<u64> = after[lead..].iter().map(|axis| self.atoms.total(axis)).collect();
        if inner.is_empty() || inner.iter().product::<u64>() != mix.elements.len() as u64 {
            return Ok(None);
        }
        Ok(Some(Form::Mix(mix.with(inner, mix.elements.clone(), self.node))))
    }

    /// Pairs of the last axis as complex numbers.
    pub(super) fn complex(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let mix = match self.form(x)? {
            Form::Mix(mix) => Some(mix),
            _ => self.whole(x, 2)?,
        };
        let mix = mix.filter(|mix| mix.inner.len() > 1 && mix.inner.last() == Some(&2));
        mix.map(Form::Complex).ok_or_else(|| "complex numbers of values that are no pairs".into())
    }

    /// The real and imaginary parts of complex numbers.
    pub(super) fn real(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        match self.form(x)? {
            Form::Complex(mix) => Ok(Form::Mix(mix)),
            _ => Err("the parts of what are no complex numbers".into()),
        }
    }

    /// Complex numbers times known ones.
    fn turned_numbers(&mut self, mix: &Mix, table: ValueId) -> Result<Form, Refusal> {
        let Some(Item::Complex(parts)) = self.known[self.id(table).index()].clone() else {
            return Err(UNKNOWN_TABLE.into());
        };
        let trailing = mix.inner.len() - 1;
        let [cos, sin] = parts.as_ref();
        let (Some(cos), Some(sin)) = (self.factors(mix, cos, trailing)?, self.factors(mix, sin, trailing)?) else {
            return Err(UNKNOWN_TABLE.into());
        };
        let kept = mix.times(self.node, |at| cos[at / 2].clone());
        let crossed = mix.times(self.node, |at| product(&sin[at / 2], &[if at % 2 == 0 { 1.0 } else { -1.0 }]));
        let swapped: Vec<Vec<Term>> =
            crossed.elements.chunks(2).flat_map(|pair| [pair[1].clone(), pair[0].clone()]).collect();
        let crossed = mix.with(mix.inner.clone(), swapped, self.node);
        kept.plus(&crossed, 1.0, self.node).map(Form::Complex).ok_or_else(|| UNKNOWN_TABLE.into())
    }

    /// A mixture as a value of the program.
    pub(super) fn mixture(&mut self, mix: &Mix) -> Result<Form, Refusal> {
        if let Some(turned) = self.rotation(mix)? {
            return Ok(turned);
        }
        // Runs of elements at equal distances.
        let mut runs: Vec<(Range, f64)> = Vec::new();
        for terms in &mix.elements {
            let (&[Term { source, ref factor }], true) = (terms.as_slice(), terms.len() == 1) else {
                return Err("values are multiplied with a table in an unknown way".into());
            };
            let (1, &by) = (factor.len(), &factor[0]) else {
                return Err("values are multiplied with numbers of their tokens in an unknown way".into());
            };
            let source = source as u64;
            match runs.last_mut() {
                Some((range, own)) if *own == by && range.length == 1 && source > range.start => {
                    (range.step, range.length) = (source - range.start, 2);
                }
                Some((range, own)) if *own == by && source == range.start + range.step * range.length => {
                    range.length += 1
                }
                _ => runs.push((Range::of(source, 1), by)),
            }
        }
        self.runs(mix, &runs).map(Form::Data)
    }

    /// The form of a value, in which a mixture is what it means.
    pub(super) fn settled(&mut self, value: ValueId) -> Result<Form, Refusal> {
        let value = self.id(value);
        if let Form::Mix(mix) = self.form(value)? {
            let form = self.mixture(&mix)?;
            self.forms.insert(value, form);
        }
        self.form(value)
    }

    /// Runs of elements, one after the other.
    fn runs(&mut self, mix: &Mix, runs: &[(Range, f64)]) -> Result<Data, Refusal> {
        const MOST: usize = 8;
        if runs.len() > MOST {
            return Err("the elements of a value are in an unknown order".into());
        }
        let whole = self.flat(mix)?;
        let mut parts = Vec::new();
        for &(range, by) in runs {
            let part = self.elements_of(&whole, range)?;
            parts.push(if by == 1.0 { part } else { self.unary(ir::ops::UnaryKind::Scale(by), &part) });
        }
        let last = parts.first().map_or(0, |part| part.axes.len() - 1);
        let mut data = if parts.len() == 1 { parts.remove(0) } else { self.concatenated(&parts, last)? };
        if mix.inner.len() > 1 {
            let sizes = self.axis_sizes(&data.axes[..last]).into_iter().chain(mix.inner.iter().copied());
            data.axes = self.atoms.view(&data.axes, &sizes.collect::<Vec<_>>(), false)?;
        }
        Ok(data)
    }

    /// The sizes of axes.
    pub(super) fn axis_sizes(&self, axes: &[Axis]) -> Vec<u64> {
        axes.iter().map(|axis| self.atoms.total(axis)).collect()
    }

    /// Elements of the last axis of a product or of another value.
    pub(super) fn elements_of(&mut self, whole: &Form, range: Range) -> Result<Data, Refusal> {
        match self.narrowed(whole, range)? {
            Form::Linear(linear) => self.product(&linear),
            Form::Data(data) => Ok(data),
            _ => Err("elements of an unknown value are mixed".into()),
        }
    }

    /// The same, with products still to be parted.
    pub(super) fn narrowed(&mut self, whole: &Form, range: Range) -> Result<Form, Refusal> {
        if range == Range::of(0, self.row_of(whole)?) {
            return Ok(whole.clone());
        }
        match whole {
            Form::Linear(linear) if self.is_output(linear, linear.axes.len() - 1) => {
                self.part_of_product(linear, linear.axes.len() - 1, range).map(Form::Linear)
            }
            Form::Linear(linear) => {
                let data = self.product(linear)?;
                self.part_of_data(&data, data.axes.len() - 1, range).map(Form::Data)
            }
            Form::Data(data) => self.part_of_data(data, data.axes.len() - 1, range).map(Form::Data),
            _ => Err("elements of an unknown value are mixed".into()),
        }
    }

    /// The number of elements of the last axis.
    pub(super) fn row_of(&self, whole: &Form) -> Result<u64, Refusal> {
        match whole {
            Form::Linear(Linear { axes, .. }) | Form::Data(Data { axes, .. }) => {
                axes.last().map(|axis| self.atoms.total(axis)).ok_or_else(|| contradiction("a scalar is mixed"))
            }
            _ => Err("elements of an unknown value are mixed".into()),
        }
    }

    /// The operand of a mixture: a product or another value, with one axis in the place of the last ones.
    pub(super) fn flat(&mut self, mix: &Mix) -> Result<Form, Refusal> {
        let join = |axes: &mut Vec<Axis>| {
            let inner = axes.split_off(axes.len() - mix.depth).concat();
            axes.push(inner);
        };
        match self.form(mix.of)? {
            Form::Linear(mut linear) => {
                join(&mut linear.axes);
                Ok(Form::Linear(linear))
            }
            _ => {
                let mut data = self.data(mix.of)?;
                join(&mut data.axes);
                Ok(Form::Data(data))
            }
        }
    }
}
