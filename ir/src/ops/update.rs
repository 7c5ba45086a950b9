//! Once a step: `sum_squares`, and the updates `adamw` and `sgd`, which are all f32. Tensors are the same run of dims, so each
//! accepts flat shards.
//!
//! An update whose `clip` is not above 0 leaves all as it is: the norm was not finite, and the step is skipped.

use super::{Attr, Attrs, OpDef, OpFacts, Rows, Shapes, Work, operands};
use crate::types::{DType, Type};

/// Checks an operand list of tensors with the sizes of the first, then scalars; all f32. Returns the tensor's type.
fn run_and_scalars(operands: &[&Type], tensors: &[&str], scalars: &[&str]) -> Result<Type, String> {
    let names = [tensors, scalars].concat();
    if operands.len() != names.len() {
        return Err(format!("takes {} operands ({}), not {}", names.len(), names.join(", "), operands.len()));
    }
    let w = operands[0].logical();
    for (place, (name, ty)) in names.iter().zip(operands).enumerate() {
        let dims = if place < tensors.len() { w.dims.as_slice() } else { &[] };
        operands::expect(name, ty, DType::F32, dims)?;
    }
    Ok(w)
}

/// Single elements of this many tensors; the scalars behind them are read whole.
fn rows(operands: &[&Type], tensors: usize) -> Rows {
    let have_rows = (0..operands.len()).map(|place| place < tensors);
    Rows { operands: have_rows.collect(), ..Rows::elements(operands.len()) }
}

/// `sum_squares(%g)`: `g [..] -> f32[]`.
#[derive(Clone, PartialEq, Debug)]
pub struct SumSquares;

impl SumSquares {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["sum_squares"];

    pub(super) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<SumSquares, String> {
        Ok(SumSquares)
    }
}

impl OpDef for SumSquares {
    fn name(&self) -> &'static str {
        "sum_squares"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [g] = operands::take(operands, "g")?;
        operands::float("g", g)?;
        Ok(vec![Type::scalar(DType::F32)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*+ -> ()".to_string()
    }

    /// Two operations per element: square and sum.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(2 * operands[0].elements(), operands, results)
    }
}

/// `adamw(%w, %g, %m, %v, %clip, %lr, %step) -> w, m, v` (Loshchilov and Hutter 2019, as PyTorch defines it). With
/// `g' = clip g`: `m = beta1 m + (1 - beta1) g'`, `v = beta2 v + (1 - beta2) g'^2`, `w = w (1 - lr weight_decay) - lr m^ /
/// (sqrt(v^) + eps)` where `m^ = m / (1 - beta1^step)` and `v^ = v / (1 - beta2^step)`; `step` counts from 1.
#[derive(Clone, PartialEq, Debug)]
pub struct AdamW {
    /// Decay of the mean.
    pub beta1: f64,
    /// Decay of the mean square.
    pub beta2: f64,
    /// Keeps the division finite.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl AdamW {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["adamw"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<AdamW, String> {
        Ok(AdamW {
            beta1: attrs.float("beta1")?,
            beta2: attrs.float("beta2")?,
            eps: attrs.float("eps")?,
            weight_decay: attrs.float("weight_decay")?,
        })
    }
}

impl OpDef for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let numbers =
            [("beta1", self.beta1), ("beta2", self.beta2), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        numbers.map(|(name, number)| (name, Attr::Float(number))).to_vec()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { updates: &[0, 2, 3], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let w = run_and_scalars(operands, &["w", "g", "m", "v"], &["clip", "lr", "step"])?;
        Ok(vec![w; 3])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*, *, *, *, (), (), () -> *, *, *".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(rows(operands, 4))
    }

    /// Sixteen operations per element: clip one, mean three, mean square four, corrections two, root, eps and quotient three,
    /// decay one, step two.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(16 * operands[0].elements(), operands, results)
    }
}

/// `sgd(%w, %g, %clip, %lr) -> w`, or with momentum `sgd(%w, %g, %m, %clip, %lr) -> w, m`, as PyTorch defines it. With
/// `g' = clip g + weight_decay w`: `m = momentum m + g'`, `w = w - lr m`; without momentum `w = w - lr g'`. With `nesterov=true`
/// the step looks ahead by one more decay: `w = w - lr (g' + momentum m)`.
#[derive(Clone, PartialEq, Debug)]
pub struct Sgd {
    /// Decay of the velocity; 0: no velocity.
    pub momentum: f64,
    /// The step has Nesterov's momentum, if there is a velocity.
    pub nesterov: bool,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
}

impl Sgd {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["sgd"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Sgd, String> {
        let (momentum, weight_decay) = (attrs.float("momentum")?, attrs.float("weight_decay")?);
        Ok(Sgd { momentum, nesterov: attrs.flag("nesterov")?, weight_decay })
    }

    /// True if it has a velocity state.
    pub fn has_momentum(&self) -> bool {
        self.momentum != 0.0
    }
}

impl OpDef for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let numbers = [("momentum", Attr::Float(self.momentum)), ("weight_decay", Attr::Float(self.weight_decay))];
        numbers.into_iter().chain(self.nesterov.then(|| ("nesterov", Attr::flag(true)))).collect()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { updates: if self.has_momentum() { &[0, 2] } else { &[0] }, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let tensors: &[&str] = if self.has_momentum() { &["w", "g", "m"] } else { &["w", "g"] };
        let w = run_and_scalars(operands, tensors, &["clip", "lr"])?;
        Ok(vec![w; tensors.len() - 1])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        if self.has_momentum() { "*, *, *, (), () -> *, *" } else { "*, *, (), () -> *" }.to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(rows(operands, if self.has_momentum() { 3 } else { 2 }))
    }

    /// Operations per element: clip one, decay two, momentum two, and two more of Nesterov's, step two.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let each = match (self.has_momentum(), self.nesterov) {
            (true, true) => 9,
            (true, false) => 7,
            (false, _) => 5,
        };
        Work::of(each * operands[0].elements(), operands, results)
    }
}
