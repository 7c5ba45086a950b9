//! `rms_norm(%x, %gamma, eps=1e-5)` over the last dim (Zhang and Sennrich 2019), and its gradients. `rstd` is f32.

use crate::ids::Value;
use crate::ops::{
    Attr, Attrs, BinaryKind, Builder, Cotangents, OpClass, OpDef, OpFacts, Rows, Shapes, UnaryKind, Work, operands,
    rows::rowwise::Rowwise,
};
use crate::types::{DType, Type};

/// `y = x rstd gamma`, `rstd = 1 / sqrt(mean(x^2) + eps)`: `(x [*m, h], gamma [h]) -> y [*m, h], rstd [*m]`.
#[derive(Clone, PartialEq, Debug)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f64,
}

impl RmsNorm {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["rms_norm"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<RmsNorm, String> {
        Ok(RmsNorm { eps: attrs.float("eps")? })
    }

    fn graph(&self, b: &mut Builder<'_>, x: Value, gamma: Value) -> Result<Vec<Value>, String> {
        let mut rows = Rowwise::new(b, x);
        let (_, dtype) = rows.last(x);
        let x = rows.cast(x, DType::F32)?;
        let gamma = rows.cast(gamma, DType::F32)?;
        let square = rows.unary(UnaryKind::Square, x)?;
        let mean = rows.mean(square)?;
        let shifted = rows.unary(UnaryKind::Shift(self.eps), mean)?;
        let rstd = rows.unary(UnaryKind::Rsqrt, shifted)?;
        let normal = rows.with_row(BinaryKind::Mul, x, rstd)?;
        let y = rows.with_column(BinaryKind::Mul, normal, gamma)?;
        Ok(vec![rows.cast(y, dtype)?, rstd])
    }
}

impl OpDef for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("eps", Attr::Float(self.eps))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { class: OpClass::Norm, expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, gamma] = operands::take(operands, "x, gamma")?;
        let x = x.logical();
        let dtype = operands::float("x", &x)?;
        let (rows, last) = operands::rows_and_last("x", &x)?;
        operands::expect("gamma", gamma, dtype, std::slice::from_ref(last))?;
        let rstd = Type::new(DType::F32, rows.to_vec());
        Ok(vec![x, rstd])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m h!, h! -> *m h!, *m".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        operands::no_cotangent("rstd", call.given[1])?;
        let Some(dy) = call.given[0] else { return Ok(vec![None; 2]) };
        let (x, gamma, rstd) = (call.operands[0], call.operands[1], call.results[1]);
        let mut cotangents = vec![None; 2];
        if call.needed[0] {
            cotangents[0] = Some(b.one(RmsNormDx, &[x, gamma, rstd, dy])?);
        }
        if call.needed[1] {
            cotangents[1] = Some(b.one(RmsNormDgamma, &[x, rstd, dy])?);
        }
        Ok(cotangents)
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true, false]))
    }

    /// Four operations per element: square, sum, and the products by rstd and gamma.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(4 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        Some(self.graph(b, operands[0], operands[1]))
    }
}

/// `rms_norm_dx(%x, %gamma, %rstd, %dy)`: `dx = rstd (g - x rstd^2 mean(g x))` with `g = dy gamma`.
#[derive(Clone, PartialEq, Debug)]
pub struct RmsNormDx;

impl RmsNormDx {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["rms_norm_dx"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<RmsNormDx, String> {
        Ok(RmsNormDx)
    }

    fn graph(&self, b: &mut Builder<'_>, operands: [Value; 4]) -> Result<Vec<Value>, String> {
        let [x, gamma, rstd, dy] = operands;
        let mut rows = Rowwise::new(b, x);
        let (_, dtype) = rows.last(x);
        let x = rows.cast(x, DType::F32)?;
        let gamma = rows.cast(gamma, DType::F32)?;
        let dy = rows.cast(dy, DType::F32)?;
        let g = rows.with_column(BinaryKind::Mul, dy, gamma)?;
        let normal = rows.with_row(BinaryKind::Mul, x, rstd)?;
        let product = rows.binary(BinaryKind::Mul, g, normal)?;
        let mean = rows.mean(product)?;
        let along = rows.with_row(BinaryKind::Mul, normal, mean)?;
        let across = rows.binary(BinaryKind::Sub, g, along)?;
        let dx = rows.with_row(BinaryKind::Mul, across, rstd)?;
        Ok(vec![rows.cast(dx, dtype)?])
    }
}

impl OpDef for RmsNormDx {
    fn name(&self) -> &'static str {
        "rms_norm_dx"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { expands_when_sharded: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, gamma, rstd, dy] = operands::take(operands, "x, gamma, rstd, dy")?;
        operands::norm_gradient(x, Some(gamma), &[("rstd", rstd)], dy)?;
        Ok(vec![x.logical()])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m h!, h!, *m, *m h! -> *m h!".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true, false, true, true]))
    }

    /// Seven operations per element: two products, the product and sum of the mean, and product, difference, product.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(7 * operands[0].elements(), operands, results)
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        let &[x, gamma, rstd, dy] = operands else { return None };
        Some(self.graph(b, [x, gamma, rstd, dy]))
    }
}

/// `rms_norm_dgamma(%x, %rstd, %dy)`: the sum over rows of `dy x rstd`.
#[derive(Clone, PartialEq, Debug)]
pub struct RmsNormDgamma;

impl RmsNormDgamma {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["rms_norm_dgamma"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<RmsNormDgamma, String> {
        Ok(RmsNormDgamma)
    }
}

impl OpDef for RmsNormDgamma {
    fn name(&self) -> &'static str {
        "rms_norm_dgamma"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, rstd, dy] = operands::take(operands, "x, rstd, dy")?;
        let (dtype, last) = operands::norm_gradient(x, None, &[("rstd", rstd)], dy)?;
        Ok(vec![Type::new(dtype, vec![last])])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m+ h, *m+, *m+ h -> h".to_string()
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::sums(operands[0].rank() - 1, 3))
    }

    /// Three operations per element: two products and the sum.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(3 * operands[0].elements(), operands, results)
    }
}
