//! Rotary positions: `x cos + concat(-x2, x1) sin`, of all elements of a head or of the first ones.

use super::{Data, Form, Lowering};
use crate::eval::Tensor;
use crate::graph::{Arg, RecordedNode, ValueId};
use crate::program::{Action, Argument};
use ir::ops::{Rope, Scaling};
use std::f64::consts::TAU;

/// The largest difference of two tables of cosines and sines.
const NEAR: f64 = 2e-4;

/// A value whose elements turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    x: ValueId,
    rope: Rope,
    /// The node of the sum.
    node: usize,
}

impl<'a> Lowering<'a> {
    /// Joined parts along the last axis: a half turn, or turned elements with those that do not turn.
    pub(super) fn cat(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let Some(Arg::Values(parts)) = node.arg("tensors") else { return Err("`tensors` is no list".to_string()) };
        let parts: Vec<ValueId> = parts.iter().flatten().map(|&part| self.id(part)).collect();
        let &[a, b] = parts.as_slice() else { return Err("more than two values are joined".to_string()) };
        match (self.form(a)?, self.form(b)?) {
            (Form::Negated(second), Form::Part { of, start: 0, length }) => {
                let Form::Part { of: own, start, length: other } = self.form(second)? else {
                    return Err("the halves of a turn are of different values".to_string());
                };
                let width = self.width(of)?;
                if (own, start, other, length.checked_mul(2)) == (of, length, length, Some(width)) {
                    return Ok(Form::HalfTurn(of));
                }
                Err("the halves of a turn are no halves".to_string())
            }
            (Form::Turned(turn), Form::Part { of, start, length }) => {
                self.partly(&turn, of, start, length).map(Form::Data)
            }
            _ => Err("values are joined that are no parts of rotary positions".to_string()),
        }
    }

    /// The elements of the last axis.
    fn width(&mut self, x: ValueId) -> Result<u64, String> {
        let axes = self.axes(x)?;
        Ok(axes.last().map_or(1, |last| self.atoms.total(last)))
    }

    /// The first elements of a value turned, the others as they are.
    fn partly(&mut self, turn: &Turn, of: ValueId, start: u64, length: u64) -> Result<Data, String> {
        let width = self.width(of)?;
        let is_whole = turn.x == of && start == width;
        let is_first =
            matches!(self.form(turn.x)?, Form::Part { of: own, start: 0, length } if own == of && length == start);
        if !(is_whole || is_first) || start.checked_add(length) != Some(width) {
            return Err("turned elements are joined with others than the rest".to_string());
        }
        self.turn(turn, (start != width).then_some((of, start)))
    }

    /// The sum of a value and its half turn, each times a table.
    pub(super) fn turned(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, String> {
        let (Form::Turning { x, table: cos, is_half: false }, Form::Turning { x: other, table: sin, is_half: true }) =
            (match (self.form(a)?, self.form(b)?) {
                (first @ Form::Turning { is_half: false, .. }, second) => (first, second),
                (first, second) => (second, first),
            })
        else {
            return Ok(None);
        };
        if x != other {
            return Err("a value is added to the half turn of another".to_string());
        }
        let axes = self.axes(x)?;
        let sequence = axes.iter().position(|axis| self.atoms.leaves(axis) == [self.sequence]);
        let sequence = sequence.ok_or("the value that turns has no axis of tokens")?;
        let width = axes.last().map_or(1, |last| self.atoms.total(last));
        let angles = |table: ValueId| -> Result<Vec<Vec<f64>>, String> {
            let table = self.known(table).ok_or("a table of angles is not known")?;
            rows(table, axes.len(), sequence, [self.atoms.size(self.sequence), width])
        };
        let rope = rope(&angles(cos)?, &angles(sin)?)?;
        Ok(Some(Form::Turned(Turn { x, rope, node: self.node })))
    }

    /// The statement of a turn: of a value, or of the first elements of another one.
    pub(super) fn turn(&mut self, turn: &Turn, whole: Option<(ValueId, u64)>) -> Result<Data, String> {
        let x = self.data(whole.map_or(turn.x, |(of, _)| of))?;
        let rope = Rope { turned: whole.map(|(_, turned)| turned), ..turn.rope.clone() };
        let dims = self.program.vars[x.var.0].clone();
        let leaves = self.dims(x.var);
        let last = x.axes.last().map(|axis| self.atoms.leaves(axis)).unwrap_or_default();
        if !leaves.starts_with(&[self.batch, self.sequence]) || last.len() != 1 || leaves.last() != last.last() {
            return Err("rotary positions of a value that is no list of heads per token".to_string());
        }
        let node = std::mem::replace(&mut self.node, turn.node);
        let var = self.state(Action::Rope(rope), vec![Argument::Var(x.var), Argument::Positions], dims);
        self.node = node;
        Ok(Data { var, axes: x.axes })
    }
}

/// The rows of a table for each token. It must be the same along all other axes of what it multiplies.
fn rows(table: &Tensor, rank: usize, sequence: usize, [tokens, width]: [u64; 2]) -> Result<Vec<Vec<f64>>, String> {
    let skipped = rank.checked_sub(table.sizes.len()).ok_or("a table of angles has more dims than what it turns")?;
    let size = |d: usize| d.checked_sub(skipped).map_or(1, |d| table.sizes[d]);
    if (0..rank).any(|d| d != sequence && d + 1 != rank && size(d) != 1 && d != 0)
        || [(sequence, tokens), (rank - 1, width)].iter().any(|&(d, wanted)| size(d) as u64 != wanted)
    {
        return Err("a table of angles is no row for each token".to_string());
    }
    let mut index = vec![0; rank];
    let rows = (0..tokens as usize).map(|token| {
        index[sequence] = token;
        let row = (0..width as usize).map(|at| {
            index[rank - 1] = at;
            let own = table.spread(&index);
            // Sequences of a batch have the same positions.
            index[0] = if sequence == 0 { token } else { size(0) - 1 };
            let is_same = table.spread(&index) == own;
            index[0] = if sequence == 0 { token } else { 0 };
            is_same.then_some(own)
        });
        row.collect::<Option<Vec<f64>>>()
    });
    rows.collect::<Option<_>>().ok_or_else(|| "the sequences of a batch have different angles".to_string())
}

/// The rotary positions whose cosines and sines these are, a row for each position from 0.
fn rope(cos: &[Vec<f64>], sin: &[Vec<f64>]) -> Result<Rope, String> {
    let width = cos.first().map_or(0, Vec::len);
    if cos.len() < 2 || width == 0 || !width.is_multiple_of(2) {
        return Err("a table of angles is too small".to_string());
    }
    let (half, gain) = (width / 2, shortest(cos[0][0]));
    let frequencies: Vec<f64> = (0..half).map(|pair| sin[1][pair].atan2(cos[1][pair])).collect();
    for (position, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        for at in 0..width {
            let (s, c) = (position as f64 * frequencies[at % half]).sin_cos();
            if (gain * c - cos[at]).abs() > NEAR * gain || (gain * s - sin[at]).abs() > NEAR * gain {
                return Err("a table has other angles than positions times frequencies".to_string());
            }
        }
    }
    let (theta, scaling) = base(&frequencies)?;
    Ok(Rope { theta, scaling, turned: None, gain, inverse: false })
}

/// The base of frequencies `base^(-i / n)`, and the divisors of those that are others.
fn base(frequencies: &[f64]) -> Result<(f64, Option<Scaling>), String> {
    let n = frequencies.len() as f64;
    if frequencies.iter().any(|&frequency| frequency <= 0.0) {
        return Err("a frequency of rotary positions is not above 0".to_string());
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
    let is_next = |&pair: &usize| (of(pair) / of(1) - 1.0).abs() < 1e-4;
    shortest(of((1..frequencies.len()).take_while(is_next).last().unwrap_or(1)))
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
