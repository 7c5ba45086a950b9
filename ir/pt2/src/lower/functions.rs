//! Functions of elements, some of which are several statements.

use super::{Data, Form, Lowering};
use crate::graph::RecordedNode;
use crate::refusal::Refusal;
use ir::ops::{BinaryKind, UnaryKind};

/// The function of an op of one operand, where the language has it.
pub(super) fn function(family: &str) -> Option<UnaryKind> {
    Some(match family.trim_end_matches('_') {
        "aten.exp" => UnaryKind::Exp,
        "aten.log" => UnaryKind::Log,
        "aten.tanh" => UnaryKind::Tanh,
        "aten.erf" => UnaryKind::Erf,
        "aten.sin" => UnaryKind::Sin,
        "aten.cos" => UnaryKind::Cos,
        "aten.sigmoid" => UnaryKind::Sigmoid,
        "aten.silu" => UnaryKind::Silu,
        "aten.relu" => UnaryKind::AtLeast(0.0),
        _ => return None,
    })
}

/// True for an op that is several statements.
pub(super) fn is_composed(family: &str) -> bool {
    const NAMES: [&str; 17] = [
        "aten.gelu",
        "aten.softplus",
        "aten.expm1",
        "aten.log1p",
        "aten.log_sigmoid",
        "aten.abs",
        "aten.elu",
        "aten.leaky_relu",
        "aten.mish",
        "aten.hardtanh",
        "aten.relu6",
        "aten.hardsigmoid",
        "aten.hardswish",
        "aten.clamp",
        "aten.clamp_min",
        "aten.clamp_max",
        "aten.square",
    ];
    NAMES.contains(&family.trim_end_matches('_'))
}

impl<'a> Lowering<'a> {
    /// A function of one operand that has parameters or several statements.
    pub(super) fn composed(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let name = if node.arg("self").is_some() { "self" } else { "input" };
        let x = self.argument(node, name)?;
        if node.family() == "aten.square" {
            return Ok(Form::Square(x));
        }
        let call = self.call(node);
        let numbers = |names: [(&str, f64); 3]| -> Result<[f64; 3], Refusal> {
            let [a, b, c] = names.map(|(name, default)| call.number_or(name, default));
            Ok([a?, b?, c?])
        };
        let family = node.family().trim_end_matches('_');
        let is_tanh = call.text("approximate") == Some("tanh");
        let settings = match family {
            "aten.softplus" => numbers([("beta", 1.0), ("threshold", 20.0), ("", 0.0)])?,
            "aten.elu" => numbers([("alpha", 1.0), ("scale", 1.0), ("input_scale", 1.0)])?,
            "aten.leaky_relu" => numbers([("negative_slope", 0.01), ("", 0.0), ("", 0.0)])?,
            "aten.hardtanh" => numbers([("min_val", -1.0), ("max_val", 1.0), ("", 0.0)])?,
            _ => [0.0; 3],
        };
        let bounds =
            [("min", f64::NEG_INFINITY), ("max", f64::INFINITY)].map(|(name, none)| call.number_or(name, none));
        let x = self.data(x)?;
        let data = match family {
            "aten.gelu" => self.unary(if is_tanh { UnaryKind::Gelu } else { UnaryKind::GeluErf }, &x),
            "aten.softplus" => self.softplus(&x, settings[0])?,
            "aten.log_sigmoid" => {
                let back = self.unary(UnaryKind::Neg, &x);
                let soft = self.softplus(&back, 1.0)?;
                self.unary(UnaryKind::Neg, &soft)
            }
            "aten.mish" => {
                let soft = self.softplus(&x, 1.0)?;
                let tanh = self.unary(UnaryKind::Tanh, &soft);
                self.combined(BinaryKind::Mul, &x, &tanh)?
            }
            "aten.expm1" => self.chain(&x, &[UnaryKind::Exp, UnaryKind::Shift(-1.0)]),
            "aten.log1p" => self.chain(&x, &[UnaryKind::Shift(1.0), UnaryKind::Log]),
            "aten.abs" => {
                let back = self.unary(UnaryKind::Neg, &x);
                self.combined(BinaryKind::Max, &x, &back)?
            }
            "aten.elu" => self.elu(&x, settings)?,
            "aten.leaky_relu" => self.sides(&x, [UnaryKind::Scale(1.0)], &[UnaryKind::Scale(settings[0])])?,
            "aten.relu6" => self.clamped(&x, 0.0, 6.0),
            "aten.hardtanh" => self.clamped(&x, settings[0], settings[1]),
            "aten.hardsigmoid" | "aten.hardswish" => {
                let line = self.chain(&x, &[UnaryKind::Scale(1.0 / 6.0), UnaryKind::Shift(0.5)]);
                let part = self.clamped(&line, 0.0, 1.0);
                if family == "aten.hardswish" { self.combined(BinaryKind::Mul, &x, &part)? } else { part }
            }
            _ => {
                let [low, high] = bounds;
                self.clamped(&x, low?, high?)
            }
        };
        Ok(Form::Data(data))
    }

    /// Functions one after the other.
    pub(super) fn chain(&mut self, x: &Data, kinds: &[UnaryKind]) -> Data {
        kinds.iter().fold(x.clone(), |x, &kind| self.unary(kind, &x))
    }

    /// `ln(1 + e^(beta x)) / beta`, as `max(x, 0) + ln(1 + e^-|beta x|) / beta`.
    fn softplus(&mut self, x: &Data, beta: f64) -> Result<Data, Refusal> {
        let above = self.unary(UnaryKind::AtLeast(0.0), x);
        let twice = self.unary(UnaryKind::Scale(2.0), &above);
        let less = self.combined(BinaryKind::Sub, x, &twice)?;
        let mut kinds = vec![UnaryKind::Scale(beta), UnaryKind::Exp, UnaryKind::Shift(1.0), UnaryKind::Log];
        kinds.push(UnaryKind::Scale(1.0 / beta));
        let kinds: Vec<UnaryKind> = kinds.into_iter().filter(|kind| *kind != UnaryKind::Scale(1.0)).collect();
        let log = self.chain(&less, &kinds);
        self.combined(BinaryKind::Add, &above, &log)
    }

    /// `scale max(x, 0) + scale alpha (e^(input_scale min(x, 0)) - 1)`
    fn elu(&mut self, x: &Data, [alpha, scale, by]: [f64; 3]) -> Result<Data, Refusal> {
        let below = [UnaryKind::Scale(by), UnaryKind::Exp, UnaryKind::Shift(-1.0), UnaryKind::Scale(scale * alpha)];
        self.sides(x, [UnaryKind::Scale(scale)], &below)
    }

    /// The sum of functions of what is above 0 and of what is below.
    fn sides(&mut self, x: &Data, above: [UnaryKind; 1], below: &[UnaryKind]) -> Result<Data, Refusal> {
        let high = self.unary(UnaryKind::AtLeast(0.0), x);
        let high = self.chain(&high, &above);
        let low = self.unary(UnaryKind::AtMost(0.0), x);
        let low = self.chain(&low, below);
        self.combined(BinaryKind::Add, &high, &low)
    }

    /// A value within bounds.
    pub(super) fn clamped(&mut self, x: &Data, low: f64, high: f64) -> Data {
        let mut data = x.clone();
        if low > f64::NEG_INFINITY {
            data = self.unary(UnaryKind::AtLeast(low), &data);
        }
        if high < f64::INFINITY {
            data = self.unary(UnaryKind::AtMost(high), &data);
        }
        data
    }
}
