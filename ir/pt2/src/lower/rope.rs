//! Rotary positions, read from mixtures: pairs of elements that turn by positions times frequencies, of all elements of a head or of some.
//!
//! The op of the language turns the elements `i` and `i + n / 2` together. Pairs of neighbours are brought into that order before, which a
//! product with a matrix does by itself, and back behind it unless queries and keys have the same order.

use super::mix::{Mix, Term};
use super::movement::Range;
use super::{Data, Form, Lowering};
use crate::program::{Action, Argument};
use crate::refusal::Refusal;
use ir::ops::{Rope, Scaling};
use std::f64::consts::TAU;

/// The largest difference of two tables of cosines and sines.
const NEAR: f64 = 2e-4;

/// The elements that turn together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pairing {
    /// `i` and `i + n / 2`
    Halves,
    /// `2 i` and `2 i + 1`
    Neighbours,
}

impl Pairing {
    const ALL: [Pairing; 2] = [Pairing::Halves, Pairing::Neighbours];

    /// The two elements of a pair among `count`.
    fn pair(self, pair: usize, count: usize) -> [usize; 2] {
        match self {
            Pairing::Halves => [pair, pair + count / 2],
            Pairing::Neighbours => [2 * pair, 2 * pair + 1],
        }
    }
}

/// Elements of a head that the program has in halves where the graph has pairs of neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Halved {
    pub(super) start: u64,
    pub(super) count: u64,
}

/// A rotation in a mixture.
struct Rotation {
    rope: Rope,
    /// The first of the old elements and of the new ones that turn.
    from: usize,
    to: usize,
    count: usize,
    old: Pairing,
    new: Pairing,
}

/// The old element that a new one is at position 0, and the one that turns into it.
fn own_and_other(terms: &[Term]) -> Option<[&Term; 2]> {
    let [a, b] = terms else { return None };
    match (a.factor[0].abs() > NEAR, b.factor[0].abs() > NEAR) {
        (true, false) => Some([a, b]),
        (false, true) => Some([b, a]),
        _ => None,
    }
}

/// The rotation of a mixture, if a part of it turns and the rest stays.
fn rotation_of(mix: &Mix) -> Option<Result<Rotation, Refusal>> {
    let to = mix.elements.iter().position(|terms| terms.len() == 2)?;
    let count = mix.elements[to..].iter().take_while(|terms| terms.len() == 2).count();
    let turned = &mix.elements[to..to + count];
    if !count.is_multiple_of(2) || turned.iter().any(|terms| terms.iter().all(|term| term.factor.len() == 1)) {
        return None;
    }
    let sides: Vec<[&Term; 2]> = turned.iter().map(|terms| own_and_other(terms)).collect::<Option<_>>()?;
    let from = sides.iter().map(|[own, _]| own.source).min()?;
    let orders = Pairing::ALL.into_iter().flat_map(|old| Pairing::ALL.map(|new| (new, old)));
    let Some((new, old)) = orders.into_iter().find(|&(new, old): &(Pairing, Pairing)| {
        (0..count / 2).all(|pair| {
            let [[first, second], [a, b]] = [new, old].map(|pairing| pairing.pair(pair, count));
            let places = [first, second].map(|at| sides[at].map(|term| term.source));
            places == [[from + a, from + b], [from + b, from + a]]
        })
    }) else {
        return Some(Err("elements turn in pairs of an unknown order".into()));
    };
    Some(angles(&sides, new).map(|rope| Rotation { rope, from, to, count, old, new }))
}

/// The rotary positions that turn these elements.
fn angles(sides: &[[&Term; 2]], new: Pairing) -> Result<Rope, Refusal> {
    let count = sides.len();
    let tokens = sides.iter().flatten().map(|term| term.factor.len()).max().unwrap_or(0);
    let at = |term: &Term, token: usize| term.factor[token % term.factor.len()];
    let places: Vec<[usize; 2]> = (0..count / 2).map(|pair| new.pair(pair, count)).collect();
    let table = |side: usize, sign: f64| -> Vec<Vec<f64>> {
        (0..tokens)
            .map(|token: usize| {
                let half = places.iter().map(move |&[first, _]| sign * at(sides[first][side], token));
                half.clone().chain(half).collect()
            })
            .collect()
    };
    let (cos, sin) = (table(0, 1.0), table(1, -1.0));
    for token in 0..tokens {
        for (pair, &[_, second]) in places.iter().enumerate() {
            let [own, other] = sides[second].map(|term| at(term, token));
            let (c, s) = (cos[token][pair], sin[token][pair]);
            if (own - c).abs() > NEAR * own.abs().max(1.0) || (other - s).abs() > NEAR * own.abs().max(1.0) {
                return Err("the two elements of a pair turn by different angles".into());
            }
        }
    }
    let is_inverse = tokens > 1 && sin[1].iter().all(|&sine| sine < 0.0);
    if !is_inverse {
        return rope(&cos, &sin);
    }
    let back: Vec<Vec<f64>> = sin.iter().map(|row| row.iter().map(|sine| -sine).collect()).collect();
    rope(&cos, &back).map(|rope| Rope { inverse: true, ..rope })
}

impl Lowering<'_> {
    /// A mixture that is a rotation, as a value.
    pub(super) fn rotation(&mut self, mix: &Mix) -> Result<Option<Form>, Refusal> {
        let Some(rotation) = rotation_of(mix) else { return Ok(None) };
        let node = std::mem::replace(&mut self.node, mix.node);
        let turned = rotation.and_then(|rotation| self.turned(mix, &rotation));
        self.node = node;
        turned.map(Some)
    }

    fn turned(&mut self, mix: &Mix, rotation: &Rotation) -> Result<Form, Refusal> {
        let &Rotation { ref rope, from, to, count, old, new } = rotation;
        // The rotation turns only the elements that are read.
        let sources = || mix.elements.iter().flatten().map(|term| term.source);
        let first = sources().min().unwrap_or(0);
        let width = sources().max().unwrap_or(0) + 1 - first;
        let whole = self.flat(mix)?;
        let whole = self.narrowed(&whole, Range::of(first as u64, width as u64))?;
        let from = from - first;
        let size = mix.elements.len();
        if !(0..to).chain(to + count..size).all(|at: usize| {
            let source = (first + from + at).checked_sub(to);
            matches!(mix.elements[at].as_slice(), [term] if Some(term.source) == source && *term.factor == [1.0])
        }) || from < to
        {
            return Err("turned elements are joined with others than the rest".into());
        }
        let is_plain = (old, new) == (Pairing::Halves, Pairing::Halves) && mix.inner.len() == 1;
        if is_plain && (from, to, size) == (0, 0, width) {
            let x = self.elements_of(&whole, Range::of(0, width as u64))?;
            let turned = (count != width).then_some(count as u64);
            return self.turn(x, Rope { turned, ..rope.clone() }).map(Form::Data);
        }
        let x = self.in_halves(&whole, Range::of(from as u64, count as u64), old)?;
        let data = self.turn(x, rope.clone())?;
        let mut all = Vec::new();
        for (start, length) in [(from - to, to), (from + count, size - to - count)] {
            if length > 0 {
                all.push(self.elements_of(&whole, Range::of(start as u64, length as u64))?);
            }
            if start + length == from || all.is_empty() {
                all.push(data.clone());
            }
        }
        let last = data.axes.len() - 1;
        let data = if all.len() == 1 { data } else { self.concatenated(&all, last)? };
        if new == Pairing::Halves || count == 2 {
            return Ok(Form::Data(self.split_last(data, &mix.inner)?));
        }
        let halved = Halved { start: to as u64, count: count as u64 };
        if mix.inner.len() == 1 {
            return Ok(Form::Adjacent(data, halved));
        }
        let data = self.neighbours(&data, halved)?;
        Ok(Form::Data(self.split_last(data, &mix.inner)?))
    }

    /// The last axis as several.
    fn split_last(&mut self, data: Data, inner: &[u64]) -> Result<Data, Refusal> {
        if inner.len() == 1 {
            return Ok(data);
        }
        let last = data.axes.len() - 1;
        let sizes: Vec<u64> = self.axis_sizes(&data.axes[..last]).into_iter().chain(inner.iter().copied()).collect();
        Ok(Data { var: data.var, axes: self.atoms.view(&data.axes, &sizes, false)? })
    }

    /// Elements that turn, with the first ones of all pairs before the second ones.
    fn in_halves(&mut self, whole: &Form, range: Range, old: Pairing) -> Result<Data, Refusal> {
        let count = range.length;
        if old == Pairing::Halves || count == 2 {
            return self.elements_of(whole, range);
        }
        let data = match self.narrowed(whole, range)? {
            Form::Linear(mut part) => {
                let last = part.axes.len() - 1;
                let sizes: Vec<u64> = self.axis_sizes(&part.axes[..last]).into_iter().chain([count / 2, 2]).collect();
                part.axes = self.atoms.view(&part.axes, &sizes, true)?;
                let second = self.atoms.leaves(&part.axes[last + 1]);
                let first = self.atoms.leaves(&part.axes[last]);
                let &[second] = second.as_slice() else { return Err("pairs of several dims turn".into()) };
                self.outputs_before(&mut part, second, &first)?;
                part.axes.swap(last, last + 1);
                self.product(&part)?
            }
            Form::Data(part) => {
                let last = part.axes.len() - 1;
                let part = self.with_axis(&part, last);
                self.split_row(&part, [count / 2, 2])
            }
            _ => return Err("elements of an unknown value turn".into()),
        };
        Ok(self.joined_last(data))
    }

    /// A value whose last two axes are one.
    fn joined_last(&mut self, mut data: Data) -> Data {
        let inner = data.axes.split_off(data.axes.len() - 2).concat();
        data.axes.push(inner);
        let last = data.axes.len() - 1;
        // Heads keep the order in which the product gives them.
        let own = self.dims(data.var);
        let inner = self.atoms.leaves(&data.axes[last]);
        if own.ends_with(&inner) {
            let joined = self.atoms.add(self.atoms.total(&inner));
            let dims = [&own[..own.len() - inner.len()], &[joined]].concat();
            data.axes[last] = vec![joined];
            return Data { var: self.reshaped(data.var, dims), axes: data.axes };
        }
        self.with_axis(&data, last)
    }

    /// A value whose last axis, a dim, is two in exchanged order.
    fn split_row(&mut self, data: &Data, sizes: [u64; 2]) -> Data {
        let last = data.axes.len() - 1;
        let [first, second] = sizes.map(|size| self.atoms.add(size));
        let mut dims = self.own_dims(data);
        let var = self.with_dims(data.var, &dims);
        dims.pop();
        dims.extend([first, second]);
        let var = self.reshaped(var, dims);
        let mut axes = data.axes[..last].to_vec();
        axes.extend([vec![second], vec![first]]);
        Data { var, axes }
    }

    /// A value with pairs of neighbours in the place of halves.
    pub(super) fn neighbours(&mut self, data: &Data, Halved { start, count }: Halved) -> Result<Data, Refusal> {
        let last = data.axes.len() - 1;
        let data = self.with_axis(data, last);
        let width = self.atoms.total(&data.axes[last]);
        let mut parts = Vec::new();
        for (start, length) in [(0, start), (start, count), (start + count, width - start - count)] {
            if length == width {
                parts.push(data.clone());
            } else if length > 0 {
                parts.push(self.part_of_data(&data, last, Range::of(start, length))?);
            }
        }
        let turned = usize::from(start > 0);
        let part = self.split_row(&parts[turned], [2, count / 2]);
        parts[turned] = self.joined_last(part);
        if parts.len() == 1 { Ok(parts.remove(0)) } else { self.concatenated(&parts, last) }
    }

    /// The statement of a turn.
    fn turn(&mut self, x: Data, rope: Rope) -> Result<Data, Refusal> {
        let place = x.axes.len() - 1;
        let x = if self.atoms.leaves(&x.axes[place]).len() == 1 { x } else { self.with_axis(&x, place) };
        let last = self.atoms.leaves(&x.axes[place]);
        let tokens = [self.batch, self.sequence];
        let own = self.dims(x.var);
        if tokens.iter().chain(&last).any(|atom| !own.contains(atom)) {
            return Err("rotary positions of a value that is no list of heads per token".into());
        }
        let heads = own.iter().copied().filter(|leaf| !tokens.contains(leaf) && !last.contains(leaf));
        let dims: Vec<_> = tokens.into_iter().chain(heads).chain(last.iter().copied()).collect();
        let var = self.with_dims(x.var, &dims);
        let var = self.state(Action::Rope(rope), vec![Argument::Var(var), Argument::Positions], dims);
        Ok(Data { var, axes: x.axes })
    }
}

/// The rotary positions whose cosines and sines these are, a row for each position from 0.
fn rope(cos: &[Vec<f64>], sin: &[Vec<f64>]) -> Result<Rope, Refusal> {
    let width = cos.first().map_or(0, Vec::len);
    if cos.len() < 2 || width == 0 || !width.is_multiple_of(2) {
        return Err("a table of angles is too small".into());
    }
    let (half, gain) = (width / 2, shortest(cos[0][0]));
    let frequencies: Vec<f64> = (0..half).map(|pair| sin[1][pair].atan2(cos[1][pair])).collect();
    for (position, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        for at in 0..width {
            let (s, c) = (position as f64 * frequencies[at % half]).sin_cos();
            if (gain * c - cos[at]).abs() > NEAR * gain || (gain * s - sin[at]).abs() > NEAR * gain {
                return Err("a table has other angles than positions times frequencies".into());
            }
        }
    }
    let (theta, scaling) = base(&frequencies)?;
    Ok(Rope { theta, scaling, turned: None, gain, inverse: false })
}

/// The base of frequencies `base^(-i / n)`, and the divisors of those that are others.
fn base(frequencies: &[f64]) -> Result<(f64, Option<Scaling>), Refusal> {
    let n = frequencies.len() as f64;
    if frequencies.iter().any(|&frequency| frequency <= 0.0) {
        return Err("a frequency of rotary positions is not above 0".into());
    }
    let of = |pair: usize, first: f64| shortest((-(frequencies[pair] / first).ln() * n / pair as f64).exp());
    let last = frequencies.len() - 1;
    let is = |theta: f64, divisor: f64| {
        let wanted = |pair: usize| theta.powf(-(pair as f64) / n) / divisor;
        frequencies.iter().enumerate().all(|(pair, &found)| (found / wanted(pair) - 1.0).abs() < 1e-5)
    };
    if last == 0 {
        // One pair has the frequency 1 under any base.
        let factor = shortest(1.0 / frequencies[0]);
        return Ok((10_000.0, (factor != 1.0).then_some(Scaling::Linear { factor })));
    }
    let factor = shortest(1.0 / frequencies[0]);
    let theta = of(last, frequencies[0]);
    if is(theta, factor) {
        return Ok((theta, (factor != 1.0).then_some(Scaling::Linear { factor })));
    }
    let theta = unscaled(frequencies);
    let divisors: Vec<f64> =
        frequencies.iter().enumerate().map(|(pair, &found)| theta.powf(-(pair as f64) / n) / found).collect();
    let scaling = by_wavelength(theta, frequencies, &divisors)
        .unwrap_or_else(|| Scaling::Pairs { divisors: divisors.into_iter().map(shortest).collect::<Vec<_>>().into() });
    Ok((theta, Some(scaling)))
}

/// The base of frequencies of which the high ones are not scaled, from the last of those.
fn unscaled(frequencies: &[f64]) -> f64 {
    let n = frequencies.len() as f64;
    let of = |pair: usize| frequencies[pair].powf(-n / pair as f64);
    shortest(of((1..frequencies.len())
        .take_while(|&pair: &usize| (of(pair) / of(1) - 1.0).abs() < 1e-4)
        .last()
        .unwrap_or(1)))
}

/// The scaling of Llama 3.1 that has these divisors, if there is one. Between its bounds, what is left of a frequency grows evenly with
/// the frequency; the lower bound is one turn in the context.
fn by_wavelength(theta: f64, frequencies: &[f64], divisors: &[f64]) -> Option<Scaling> {
    let n = frequencies.len() as f64;
    let factor = shortest(*divisors.last()?);
    let shares = divisors.iter().map(|divisor| (1.0 / divisor - 1.0 / factor) / (1.0 - 1.0 / factor));
    let turns = (0..divisors.len()).map(|pair| theta.powf(-(pair as f64) / n) / TAU);
    let between: Vec<(f64, f64)> = turns.zip(shares).filter(|(_, share)| (0.001..0.999).contains(share)).collect();
    let (&(x, high_share), &(y, low_share)) = (between.first()?, between.last()?);
    let slope = (high_share - low_share) / (x - y);
    let high = 1.0 + 1.0 / (slope * y - low_share);
    let context = slope * (high - 1.0);
    let (high, power) = ((high * 100.0).round() / 100.0, 2f64.powf(context.log2().round()));
    let context = if (power / context - 1.0).abs() < 0.01 { power } else { context.round() };
    let scaling = Scaling::Llama3 { factor, low: 1.0, high, context: context as u64 };
    let rope = Rope { theta, scaling: Some(scaling.clone()), turned: None, gain: 1.0, inverse: false };
    let own = rope.frequencies(2 * frequencies.len());
    let is_same = own.iter().zip(frequencies).all(|(own, found)| (own / found - 1.0).abs() < 1e-5);
    (between.len() > 1 && scaling.check().is_ok() && is_same).then_some(scaling)
}

/// The number with the fewest digits that f32 hardly tells apart.
fn shortest(x: f64) -> f64 {
    let rounded = (0..8).filter_map(|digits| format!("{x:.digits$e}").parse::<f64>().ok());
    rounded.into_iter().find(|rounded| (rounded - x).abs() <= 2e-6 * x.abs()).unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(frequencies: &[f64], gain: f64) -> [Vec<Vec<f64>>; 2] {
        let table = |f: fn(f64) -> f64| {
            let row = |position: usize| {
                (0..2 * frequencies.len())
                    .map(move |at| f64::from((gain * f(position as f64 * frequencies[at % frequencies.len()])) as f32))
            };
            (0..5).map(|position| row(position).collect()).collect()
        };
        [table(f64::cos), table(f64::sin)]
    }

    #[test]
    fn the_base_is_found_from_the_angles() {
        for theta in [10_000.0, 500_000.0, 1_000_000.0] {
            let frequencies: Vec<f64> = (0..32).map(|pair| f64::powf(theta, -f64::from(pair) / 32.0)).collect();
            let [cos, sin] = tables(&frequencies, 1.25);
            let found = rope(&cos, &sin).unwrap();
            assert_eq!((found.theta, found.gain, found.scaling), (theta, 1.25, None));
        }
    }

    #[test]
    fn scaled_frequencies_have_divisors() {
        let plain: Vec<f64> = (0..8).map(|pair| f64::powf(10_000.0, -f64::from(pair) / 8.0)).collect();
        let [cos, sin] = tables(&plain.iter().map(|frequency| frequency / 4.0).collect::<Vec<_>>(), 1.0);
        assert_eq!(rope(&cos, &sin).unwrap().scaling, Some(Scaling::Linear { factor: 4.0 }));
        let scaled: Vec<f64> = plain.iter().enumerate().map(|(pair, f)| if pair < 6 { *f } else { f / 8.0 }).collect();
        let [cos, sin] = tables(&scaled, 1.0);
        let found = rope(&cos, &sin).unwrap();
        let divisors = vec![1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0, 8.0];
        assert_eq!((found.theta, found.scaling), (10_000.0, Some(Scaling::Pairs { divisors: divisors.into() })));
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 };
        let llama = Rope { theta: 500_000.0, scaling: Some(scaling), turned: None, gain: 1.0, inverse: false };
        let [cos, sin] = tables(&llama.frequencies(128), 1.0);
        assert_eq!(rope(&cos, &sin).unwrap(), llama);
        let [cos, mut sin] = tables(&plain, 1.0);
        sin[3][2] = 0.5;
        assert!(rope(&cos, &sin).is_err());
    }
}
