//! `rope(%x, %pos, theta=10000.0)`: rotary position embedding (Su et al. 2021) in the rotate-half convention of Llama, with
//! `scaling="linear", factor=2.0`, `scaling="llama3", factor=8.0, low=1.0, high=4.0, context=8192` or
//! `scaling="yarn", factor=40.0, low=1.0, high=32.0, context=4096` for longer contexts, the last with `fractional=true` too, or
//! `scaling="pairs", divisors="1.0 1.2 4.5"` with a number for each pair. `rope(%x, %pos, %len, .., scaling="lengths", divisors="1.0 1.2
//! 4.5", long="2.0 4.0 8.0", context=4096)` has other numbers for the tokens of long sequences. With `turned=32` it turns the first 32
//! elements of a head and leaves the others as they are; with `gain=1.2` what turns grows by that factor.

use super::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Rows, Shapes, Work, operands};
use crate::ids::Value;
use crate::types::{DType, Type};
use serde::Serialize;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::f64::consts::TAU;

/// Turns each pair `(i, i + n/2)` of the first `n` elements of the last dim by the angle `pos frequency[i]`, and multiplies it
/// by the gain, with the frequencies of [`Rope::frequencies`]: `(x [b, s, *n, d], pos i32[b, s]) -> y [b, s, *n, d]`. Under
/// [`Scaling::Lengths`] a third operand `len i32[b, s]` has the length of each token's sequence.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f64,
    /// The scaling of the frequencies for a longer context.
    pub scaling: Option<Scaling>,
    /// The elements of a head that turn, the first ones (Black et al. 2022, GPT-NeoX, section 2.1.1); `None`: all.
    pub turned: Option<u64>,
    /// The factor of those elements, in both directions; 1: they keep their length.
    pub gain: f64,
    /// Turns the other way: the transpose, hence the gradient.
    pub inverse: bool,
}

/// A scaling of rotary frequencies for contexts longer than that of the first training; the kinds and formulas are those of
/// `modeling_rope_utils.py` in Hugging Face's `transformers`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub enum Scaling {
    /// All frequencies by one factor (Chen et al. 2023).
    Linear {
        /// The divisor of all frequencies; at least 1.
        factor: f64,
    },
    /// By wavelength, in tokens: those above `context / low` as in `Linear`, those below `context / high` not at all, and
    /// those between in part (Llama 3.1).
    Llama3 {
        /// The divisor of low frequencies; at least 1.
        factor: f64,
        /// Turns within `context` up to which a frequency is low; above 0.
        low: f64,
        /// Turns within `context` from which a frequency is high; not below `low`.
        high: f64,
        /// Tokens of the context before scaling.
        context: u64,
    },
    /// As `Llama3`, but in between the part goes by the number of the pair, not by its turns (Peng et al. 2023, YaRN, section
    /// 3.2). Its scaling of attention scores is not part of this op.
    Yarn {
        /// The divisor of low frequencies; at least 1.
        factor: f64,
        /// Turns within `context` up to which a frequency is low; above 0.
        low: f64,
        /// Turns within `context` from which a frequency is high; not below `low`.
        high: f64,
        /// Tokens of the context before scaling.
        context: u64,
        /// True: the bounds may be between pairs. False: they are rounded outwards to integer pairs.
        fractional: bool,
    },
    /// Each frequency by a number of its own, which a search has found (Ding et al. 2024, LongRoPE).
    Pairs {
        /// Divisors of the frequencies, one for each pair; above 0.
        divisors: Cow<'static, [f64]>,
    },
    /// As `Pairs`, with other divisors in long sequences (LongRoPE). The length that counts is the third operand of the op, so that
    /// documents that start again at position 0 choose as their positions do, on any mesh.
    Lengths {
        /// Divisors in sequences of at most `context` tokens.
        short: Cow<'static, [f64]>,
        /// Divisors in longer ones.
        long: Cow<'static, [f64]>,
        /// Tokens of the context before scaling.
        context: u64,
    },
}

/// The frequencies of tokens in sequences that are longer than a context.
#[derive(Clone, PartialEq, Debug)]
pub struct Beyond {
    /// Tokens of the context.
    pub context: u64,
    /// Radians per token of each pair.
    pub frequencies: Vec<f64>,
}

/// The numbers of an attribute.
fn divisors(attrs: &mut Attrs, name: &str) -> Result<Cow<'static, [f64]>, String> {
    let text = attrs.string(name)?;
    let numbers = text.split_whitespace().map(|number| number.parse().map_err(|_| number));
    let numbers: Result<Vec<f64>, &str> = numbers.collect();
    numbers.map(Cow::from).map_err(|text| format!("`{name}` has `{text}`, which is no number"))
}

/// The attribute of numbers.
fn listed(numbers: &[f64]) -> Attr {
    Attr::Str(numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
}

impl Scaling {
    fn parse(attrs: &mut Attrs) -> Result<Option<Scaling>, String> {
        let Some(kind) = attrs.optional_string("scaling")? else { return Ok(None) };
        if kind == "pairs" {
            return Ok(Some(Scaling::Pairs { divisors: divisors(attrs, "divisors")? }));
        }
        if kind == "lengths" {
            let [short, long] = [divisors(attrs, "divisors")?, divisors(attrs, "long")?];
            return Ok(Some(Scaling::Lengths { short, long, context: attrs.int("context")? }));
        }
        let factor = attrs.float("factor")?;
        match kind.as_str() {
            "linear" => Ok(Some(Scaling::Linear { factor })),
            "llama3" | "yarn" => {
                let (low, high, context) = (attrs.float("low")?, attrs.float("high")?, attrs.int("context")?);
                Ok(Some(if kind == "yarn" {
                    Scaling::Yarn { factor, low, high, context, fractional: attrs.flag("fractional")? }
                } else {
                    Scaling::Llama3 { factor, low, high, context }
                }))
            }
            _ => Err(format!("there is no scaling `{kind}`; there are linear, llama3, yarn, pairs, lengths")),
        }
    }

    /// The divisor of low frequencies, if all have one.
    pub fn factor(&self) -> Option<f64> {
        match *self {
            Scaling::Linear { factor } | Scaling::Llama3 { factor, .. } | Scaling::Yarn { factor, .. } => Some(factor),
            Scaling::Pairs { .. } | Scaling::Lengths { .. } => None,
        }
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let kind = |name: &str, factor| vec![("scaling", Attr::Str(name.to_string())), ("factor", Attr::Float(factor))];
        match *self {
            Scaling::Linear { factor } => kind("linear", factor),
            Scaling::Llama3 { factor, low, high, context } | Scaling::Yarn { factor, low, high, context, .. } => {
                let name = if matches!(self, Scaling::Yarn { .. }) { "yarn" } else { "llama3" };
                let mut attrs = kind(name, factor);
                attrs.extend([("low", Attr::Float(low)), ("high", Attr::Float(high)), ("context", Attr::int(context))]);
                let fractional = matches!(self, Scaling::Yarn { fractional: true, .. });
                attrs.extend(fractional.then(|| ("fractional", Attr::flag(true))));
                attrs
            }
            Scaling::Pairs { ref divisors } => {
                vec![("scaling", Attr::Str("pairs".to_string())), ("divisors", listed(divisors))]
            }
            Scaling::Lengths { ref short, ref long, context } => vec![
                ("scaling", Attr::Str("lengths".to_string())),
                ("divisors", listed(short)),
                ("long", listed(long)),
                ("context", Attr::int(context)),
            ],
        }
    }

    /// Checks that the parameters are in range.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn check(&self) -> Result<(), String> {
        if let Some(factor) = self.factor().filter(|factor| !factor.is_finite() || *factor < 1.0) {
            return Err(format!("the factor {factor} must be at least 1"));
        }
        match *self {
            Scaling::Llama3 { low, high, .. } | Scaling::Yarn { low, high, .. }
                if !(0.0 < low && low <= high && high.is_finite()) =>
            {
                Err(format!("the low factor {low} must be above 0 and at most the high factor {high}"))
            }
            Scaling::Llama3 { context: 0, .. }
            | Scaling::Yarn { context: 0, .. }
            | Scaling::Lengths { context: 0, .. } => Err("the context must be at least 1".to_string()),
            _ => match self.divisors().into_iter().flatten().find(|by| !by.is_finite() || **by <= 0.0) {
                Some(by) => Err(format!("the divisor {by} must be above 0")),
                None => Ok(()),
            },
        }
    }

    /// Its lists of a divisor for each pair.
    fn divisors(&self) -> Vec<&[f64]> {
        match self {
            Scaling::Pairs { divisors } => vec![divisors],
            Scaling::Lengths { short, long, .. } => vec![short, long],
            Scaling::Linear { .. } | Scaling::Llama3 { .. } | Scaling::Yarn { .. } => Vec::new(),
        }
    }

    /// True if the op reads the lengths of sequences.
    pub fn reads_lengths(&self) -> bool {
        matches!(self, Scaling::Lengths { .. })
    }

    /// The scaled frequency of pair `i` of a head of size `d`, in radians per token.
    fn apply(&self, frequency: f64, i: usize, d: usize, theta: f64) -> f64 {
        match *self {
            Scaling::Linear { factor } => frequency / factor,
            Scaling::Pairs { divisors: ref by } | Scaling::Lengths { short: ref by, .. } => {
                frequency / by.get(i).copied().unwrap_or(1.0)
            }
            Scaling::Yarn { factor, low, high, context, fractional } => {
                // The real-valued index of the pair with this number of turns.
                let pair = |turns: f64| d as f64 * (context as f64 / (turns * TAU)).ln() / (2.0 * theta.ln());
                let [mut first, mut last] = [pair(high), pair(low)];
                if !fractional {
                    (first, last) = (first.floor(), last.ceil());
                }
                (first, last) = (first.max(0.0), last.min(d as f64 - 1.0));
                // If no pair completes a turn, the last bound comes first, and no frequency is lowered.
                let between = if first == last { 0.001 } else { last - first };
                let lowered = ((i as f64 - first) / between).clamp(0.0, 1.0);
                lowered * frequency / factor + (1.0 - lowered) * frequency
            }
            Scaling::Llama3 { factor, low, high, context } => {
                let turns = context as f64 * frequency / TAU;
                // 0 where the frequency is low, 1 where it is high; between equal bounds there is nothing.
                let kept = if turns == high { 1.0 } else { ((turns - low) / (high - low)).clamp(0.0, 1.0) };
                (1.0 - kept) * frequency / factor + kept * frequency
            }
        }
    }
}

impl Rope {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["rope"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Rope, String> {
        let (theta, scaling) = (attrs.float("theta")?, Scaling::parse(attrs)?);
        let (turned, gain) = (attrs.optional_int("turned")?, attrs.optional_float("gain")?.unwrap_or(1.0));
        Ok(Rope { theta, scaling, turned, gain, inverse: attrs.flag("inverse")? })
    }

    /// The frequencies of tokens in sequences that are longer than a context, if these have others.
    pub fn beyond(&self, d: usize) -> Option<Beyond> {
        let Some(Scaling::Lengths { long, context, .. }) = &self.scaling else { return None };
        let op = Rope { scaling: Some(Scaling::Pairs { divisors: long.clone() }), ..self.clone() };
        Some(Beyond { context: *context, frequencies: op.frequencies(d) })
    }

    /// The scaled frequencies `theta^(-2i/n)` of the `n/2` pairs of a head of size `d` of which `n` elements turn, in radians
    /// per token; where lengths count, those of short sequences.
    pub fn frequencies(&self, d: usize) -> Vec<f64> {
        let d = self.turned.map_or(d, |turned| d.min(turned as usize));
        let plain = (0..d / 2).map(|i| self.theta.powf(-2.0 * i as f64 / d as f64));
        let scaled = |(i, frequency)| self.scaling.as_ref().map_or(frequency, |s| s.apply(frequency, i, d, self.theta));
        plain.enumerate().map(scaled).collect()
    }
}

impl OpDef for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = vec![("theta", Attr::Float(self.theta))];
        attrs.extend(self.scaling.iter().flat_map(Scaling::attrs));
        attrs.extend(self.turned.map(|turned| ("turned", Attr::int(turned))));
        attrs.extend((self.gain != 1.0).then_some(("gain", Attr::Float(self.gain))));
        attrs.extend(self.inverse.then(|| ("inverse", Attr::flag(true))));
        attrs
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let by_length = self.scaling.as_ref().is_some_and(Scaling::reads_lengths);
        let (x, pos, len) = if by_length {
            let [x, pos, len] = operands::take(operands, "x, pos, len")?;
            (x, pos, Some(len))
        } else {
            let [x, pos] = operands::take(operands, "x, pos")?;
            (x, pos, None)
        };
        self.scaling.as_ref().map_or(Ok(()), Scaling::check)?;
        if !self.gain.is_finite() {
            return Err(format!("`gain` {} must be finite", self.gain));
        }
        operands::float("x", x)?;
        if x.rank() < 3 {
            return Err(format!("`x` must be [b, s, .., d], its rank is {}", x.rank()));
        }
        operands::expect("pos", pos, DType::I32, &x.dims[..2])?;
        len.map_or(Ok(()), |len| operands::expect("len", len, DType::I32, &x.dims[..2]))?;
        let (_, d) = operands::rows_and_last("x", x)?;
        let turned = self.turned.unwrap_or(d.size);
        if !turned.is_multiple_of(2) {
            return Err(format!("turns pairs of the last dim, so {turned} must be even"));
        }
        if !(1..=d.size).contains(&turned) && self.turned.is_some() {
            return Err(format!("`turned` {turned} must be from 2 to the {} elements of the last dim", d.size));
        }
        let lists = self.scaling.iter().flat_map(Scaling::divisors);
        for (name, list) in ["divisors", "long"].into_iter().zip(lists) {
            if list.len() as u64 != turned / 2 {
                return Err(format!("{} pairs turn, but `{name}` has {} numbers", turned / 2, list.len()));
            }
        }
        Ok(vec![x.logical()])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        format!("b s *n d!{} -> b s *n d!", ", b s".repeat(operands.len().saturating_sub(1)))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let mut gradients = vec![None; call.operands.len()];
        if let (Some(dy), true) = (call.given[0], call.needed[0]) {
            let back = Rope { inverse: !self.inverse, ..self.clone() };
            gradients[0] = Some(b.one(back, &[&[dy], &call.operands[1..]].concat())?);
        }
        Ok(gradients)
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        let operands = SmallVec::from_elem(true, operands.len());
        Some(Rows { dims: Some(2), operands, sums: false, product: None })
    }

    /// Three operations per element: two products and a sum. Those that do not turn count, too.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(3 * operands[0].elements(), operands, results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_frequencies(op: &Rope, d: usize, expected: &[(usize, f64)]) {
        let found = op.frequencies(d);
        assert_eq!(found.len(), d / 2);
        for &(i, expected) in expected {
            assert!((found[i] / expected - 1.0).abs() < 1e-10, "{i}: {} is not {expected}", found[i]);
        }
    }

    /// Wavelengths are 2 pi times 1, 10, 100 and 1000 tokens; the bounds are 250 and 1000 tokens. The third is between: in
    /// 1000 tokens it makes 5 / pi turns, of which (5 / pi - 1) / 3 = 0.197183143660 is unscaled, and the rest divided by 8.
    #[test]
    fn long_waves_are_lengthened_and_short_ones_kept() {
        let plain = Rope { theta: 1e4, scaling: None, turned: None, gain: 1.0, inverse: false };
        assert_frequencies(&plain, 8, &[(0, 1.0), (1, 0.1), (2, 0.01), (3, 0.001)]);
        let linear = Rope { scaling: Some(Scaling::Linear { factor: 4.0 }), ..plain.clone() };
        assert_frequencies(&linear, 8, &[(0, 0.25), (1, 0.025), (2, 0.0025), (3, 0.00025)]);
        let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 1000 };
        let llama3 = Rope { scaling: Some(llama3), ..plain };
        let between = 0.01 * (0.197_183_143_660 + 0.802_816_856_340 / 8.0);
        assert_frequencies(&llama3, 8, &[(0, 1.0), (1, 0.1), (2, between), (3, 0.000_125)]);
    }

    /// A quarter of a head of 16 is a head of 4.
    #[test]
    fn part_of_a_head_has_the_frequencies_of_a_small_head() {
        let plain = Rope { theta: 1e4, scaling: None, turned: None, gain: 1.0, inverse: false };
        let part = Rope { turned: Some(4), ..plain.clone() };
        assert_frequencies(&part, 4, &[(0, 1.0), (1, 0.01)]);
        assert_eq!(part.frequencies(16), part.frequencies(4));
        let (x, pos) = (Type::of(DType::F32, &[2, 3, 4]), Type::of(DType::I32, &[2, 3]));
        for (turned, part) in [(3, "even"), (6, "from 2 to"), (0, "from 2 to")] {
            let why = Rope { turned: Some(turned), ..plain.clone() }.infer(&[&x, &pos]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    /// Figures by `_compute_llama3_parameters` of `transformers`, its branches written out in Python doubles.
    #[test]
    fn frequencies_of_llama_3_1() {
        let scaling = Some(Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192 });
        let op = Rope { theta: 500_000.0, scaling, turned: None, gain: 1.0, inverse: false };
        let (high, low) =
            ([(0, 1.0), (28, 0.003211445994752591)], [(35, 9.556212353964683e-5), (48, 6.647869871181235e-6)]);
        let between = [(29, 0.002166570763503359), (32, 0.0005248461609929547), (34, 0.0001785078127679964)];
        assert_frequencies(&op, 128, &[high.as_slice(), &between, &low].concat());
    }

    /// In a context of 4096 tokens, pair i makes 4096 / (2 pi 100^(i / 4)) turns: 32 at i = 2.62, 1 at 5.63. So pair 2 is the
    /// last unscaled pair, pair 4 is scaled by half, and pair 6 is the first fully scaled pair.
    #[test]
    fn yarn_lowers_by_the_number_of_the_pair() {
        let scaling = |context, fractional| {
            let scaling = Scaling::Yarn { factor: 4.0, low: 1.0, high: 32.0, context, fractional };
            Rope { theta: 1e4, scaling: Some(scaling), turned: None, gain: 1.0, inverse: false }
        };
        let rounded = scaling(4096, false);
        assert_frequencies(&rounded, 16, &[(2, 0.1), (4, 0.01 * 0.625), (6, 0.001 / 4.0), (7, 10f64.powf(-3.5) / 4.0)]);
        // Without rounding (4 - 2.618060) / (5.628360 - 2.618060) of pair 4 is lowered.
        let between = 0.01 * (1.0 - 0.75 * 0.459_070_463_849_4);
        assert_frequencies(&scaling(4096, true), 16, &[(2, 0.1), (4, between), (6, 0.001 / 4.0)]);
        // The last bound comes before the first pair, and none is lowered.
        assert_frequencies(&scaling(1, false), 16, &[(0, 1.0), (2, 0.1), (6, 0.001)]);
    }

    #[test]
    fn numbers_without_meaning_are_refused() {
        let llama3 = |low, high, context| Scaling::Llama3 { factor: 8.0, low, high, context };
        let cases = [
            (Scaling::Linear { factor: 0.5 }, "at least 1"),
            (Scaling::Linear { factor: f64::NAN }, "at least 1"),
            (llama3(4.0, 3.0, 8192), "at most the high factor 3"),
            (llama3(0.0, 4.0, 8192), "above 0"),
            (llama3(1.0, 4.0, 0), "context"),
        ];
        let (x, pos) = (Type::of(DType::F32, &[2, 3, 4]), Type::of(DType::I32, &[2, 3]));
        for (scaling, part) in cases {
            let op = Rope { theta: 1e4, scaling: Some(scaling), turned: None, gain: 1.0, inverse: false };
            let why = op.infer(&[&x, &pos]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn an_unknown_scaling_is_named_with_those_known() {
        let attrs =
            [("theta", Attr::Float(1e4)), ("scaling", Attr::Str("dynamic".to_string())), ("factor", Attr::Float(2.0))];
        let mut attrs = Attrs(attrs.map(|(name, attr)| (name.to_string(), attr)).to_vec());
        let why = Rope::parse("rope", &mut attrs, &Shapes { operands: &[], results: &[] }).unwrap_err();
        assert_eq!(why, "there is no scaling `dynamic`; there are linear, llama3, yarn, pairs, lengths");
    }
}
