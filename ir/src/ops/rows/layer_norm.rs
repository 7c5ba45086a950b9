//! `layer_norm(%x, %gamma, %beta, eps=1e-5)` over the last dim (Ba et al. 2016), and its gradients. `mean` and `rstd` are
//! f32.

use crate::ids::Value;
use crate::ops::{
    Attr, Attrs, BinaryKind, Builder, Cotangents, Equation, OpClass, OpDef, OpFacts, Reduce, Rows, Shapes, UnaryKind,
    Work, operands, rows::rowwise::Rowwise,
};
use crate::types::{DType, Type};

/// `y = (x - mean) rstd gamma + beta`, `rstd = 1 / sqrt(variance + eps)`:
/// `(x [*m, h], gamma [h], beta [h]) -> y [*m, h], mean [*m], rstd [*m]`.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["layer_norm"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<LayerNorm, String> {
        Ok(LayerNorm { eps: attrs.float("eps")? })
    }

    fn graph(&self, b: &mut Builder<'_>, operands: [Value; 3]) -> Result<Vec<Value>, String> {
        let [x, gamma, beta] = operands;
        let mut rows = Rowwise::new(b, x);
        let (_, dtype) = rows.last(x);
        let x = rows.cast(x, DType::F32)?;
        let gamma = rows.cast(gamma, DType::F32)?;
        let beta = rows.cast(beta, DType::F32)?;
        let mean = rows.mean(x)?;
        let centred = rows.with_row(BinaryKind::Sub, x, mean)?;
        let square = rows.unary(UnaryKind::Square, centred)?;
        let variance = rows.mean(square)?;
        let shifted = rows.unary(UnaryKind::Shift(self.eps), variance)?;
        let rstd = rows.unary(UnaryKind::Rsqrt, shifted)?;
        let normal = rows.with_row(BinaryKind::Mul, centred, rstd)?;
        let scaled = rows.with_column(BinaryKind::Mul, normal, gamma)?;
        let y = rows.with_column(BinaryKind::Add, scaled, beta)?;
        Ok(vec![rows.cast(y, dtype)?, mean, rstd])
    }
}

/// The cotangent of beta: the sum of dy over rows.
fn dbeta(b: &mut Builder<'_>, dy: Value) -> Result<Value, String> {
    let labels: Vec<String> = (0..b.ty(dy).rank()).map(|place| format!("m{place}")).collect();
    let last = labels.last().cloned().into_iter().collect();
    b.one(Reduce::sum(Equation { operands: vec![labels], result: last }), &[dy])
}

impl OpDef for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("eps", Attr::Float(self.eps))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { class: OpClass::Norm, expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, gamma, beta] = operands::take(operands, "x, gamma, beta")?;
        let x = x.logical();
        let dtype = operands::float("x", &x)?;
        let (rows, last) = operands::rows_and_last("x", &x)?;
        operands::expect("gamma", gamma, dtype, std::slice::from_ref(last))?;
        operands::expect("beta", beta, dtype, std::slice::from_ref(last))?;
        let row = Type::new(DType::F32, rows.to_vec());
        Ok(vec![x, row.clone(), row])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m h!, h!, h! -> *m h!, *m, *m".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        operands::no_cotangent("mean", call.given[1])?;
        operands::no_cotangent("rstd", call.given[2])?;
        let Some(dy) = call.given[0] else { return Ok(vec![None; 3]) };
        let (x, gamma, mean, rstd) = (call.operands[0], call.operands[1], call.results[1], call.results[2]);
        let mut cotangents = vec![None; 3];
        if call.needed[0] {
            cotangents[0] = Some(b.one(LayerNormDx, &[x, gamma, mean, rstd, dy])?);
        }
        if call.needed[1] {
            cotangents[1] = Some(b.one(LayerNormDgamma, &[x, mean, rstd, dy])?);
        }
        if call.needed[2] {
            cotangents[2] = Some(dbeta(b, dy)?);
        }
        Ok(cotangents)
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true, false, false]))
    }

    /// Seven operations per element: sum, difference, square, sum, products by rstd and gamma, sum with beta.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(7 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        let &[x, gamma, beta] = operands else { return None };
        Some(self.graph(b, [x, gamma, beta]))
    }
}

/// `layer_norm_dx(%x, %gamma, %mean, %rstd, %dy)`: `dx = rstd (g - mean(g) - n mean(g n))` with `g = dy gamma` and
/// `n = (x - mean) rstd`.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerNormDx;

impl LayerNormDx {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["layer_norm_dx"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<LayerNormDx, String> {
        Ok(LayerNormDx)
    }

    fn graph(&self, b: &mut Builder<'_>, operands: [Value; 5]) -> Result<Vec<Value>, String> {
        let [x, gamma, mean, rstd, dy] = operands;
        let mut rows = Rowwise::new(b, x);
        let (_, dtype) = rows.last(x);
        let x = rows.cast(x, DType::F32)?;
        let gamma = rows.cast(gamma, DType::F32)?;
        let dy = rows.cast(dy, DType::F32)?;
        let g = rows.with_column(BinaryKind::Mul, dy, gamma)?;
        let centred = rows.with_row(BinaryKind::Sub, x, mean)?;
        let normal = rows.with_row(BinaryKind::Mul, centred, rstd)?;
        let product = rows.binary(BinaryKind::Mul, g, normal)?;
        let mean_g = rows.mean(g)?;
        let mean_product = rows.mean(product)?;
        let along = rows.with_row(BinaryKind::Mul, normal, mean_product)?;
        let level = rows.with_row(BinaryKind::Sub, g, mean_g)?;
        let across = rows.binary(BinaryKind::Sub, level, along)?;
        let dx = rows.with_row(BinaryKind::Mul, across, rstd)?;
        Ok(vec![rows.cast(dx, dtype)?])
    }
}

impl OpDef for LayerNormDx {
    fn name(&self) -> &'static str {
        "layer_norm_dx"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, gamma, mean, rstd, dy] = operands::take(operands, "x, gamma, mean, rstd, dy")?;
        operands::norm_gradient(x, Some(gamma), &[("mean", mean), ("rstd", rstd)], dy)?;
        Ok(vec![x.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m h!, h!, *m, *m, *m h! -> *m h!".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true, false, true, true, true]))
    }

    /// Ten operations per element: `n` two, `g` one, the means three, the rest four.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(10 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        let &[x, gamma, mean, rstd, dy] = operands else { return None };
        Some(self.graph(b, [x, gamma, mean, rstd, dy]))
    }
}

/// `layer_norm_dgamma(%x, %mean, %rstd, %dy)`: the sum over rows of `dy (x - mean) rstd`.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerNormDgamma;

impl LayerNormDgamma {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["layer_norm_dgamma"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<LayerNormDgamma, String> {
        Ok(LayerNormDgamma)
    }
}

impl OpDef for LayerNormDgamma {
    fn name(&self) -> &'static str {
        "layer_norm_dgamma"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, mean, rstd, dy] = operands::take(operands, "x, mean, rstd, dy")?;
        let (dtype, last) = operands::norm_gradient(x, None, &[("mean", mean), ("rstd", rstd)], dy)?;
        Ok(vec![Type::new(dtype, vec![last])])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m+ h, *m+, *m+, *m+ h -> h".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::sums(operands[0].rank() - 1, 4))
    }

    /// Four operations per element: difference, two products, sum.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(4 * operands[0].elements(), operands, results)
    }
}
