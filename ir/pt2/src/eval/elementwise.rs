//! Elementwise ops, with PyTorch's broadcasting and promotion.

use super::call::Call;
use super::tensor::{ElementKind, Item, Tensor};
use crate::refusal::{Refusal, contradiction};

type Results = Result<Vec<Item>, Refusal>;

/// The results of an elementwise op; none for another op.
pub(super) fn evaluate(call: &Call<'_>) -> Option<Results> {
    let family = call.node.family();
    let name = family.strip_prefix("aten.")?.trim_end_matches('_');
    if let Some((function, gives)) = unary(name) {
        return Some(call.tensor("self").map(|x| {
            let kind = match gives {
                Gives::Float => ElementKind::Float,
                Gives::Bool => ElementKind::Bool,
                Gives::Same => x.kind,
            };
            vec![x.map(kind, function).into()]
        }));
    }
    let name = match name {
        "max" if call.node.arg("other").is_some() => "maximum",
        "min" if call.node.arg("other").is_some() => "minimum",
        name => name,
    };
    if let Some((function, gives)) = binary(name) {
        return Some(two(call, function, gives));
    }
    match name {
        "add" | "sub" | "rsub" => Some(sum(call, name)),
        "gelu" => Some(call.tensor("self").map(|x| {
            let is_tanh = call.text("approximate") == Some("tanh");
            vec![x.map(ElementKind::Float, |x| gelu(x, is_tanh)).into()]
        })),
        "softplus" | "elu" | "leaky_relu" | "hardtanh" => Some(settled(call, name)),
        "where" => Some(select(call)),
        "masked_fill" => Some(masked_fill(call)),
        "clamp" | "clamp_min" | "clamp_max" => Some(clamp(call)),
        _ => None,
    }
}

type Unary = fn(f64) -> f64;
type Binary = fn(f64, f64) -> f64;

/// The kind of the result.
#[derive(Clone, Copy)]
enum Gives {
    Same,
    Float,
    Bool,
}

fn unary(name: &str) -> Option<(Unary, Gives)> {
    Some(match name {
        "neg" => (|x| -x, Gives::Same),
        "abs" => (f64::abs, Gives::Same),
        "relu" => (|x| x.max(0.0), Gives::Same),
        "square" => (|x| x * x, Gives::Same),
        "floor" => (f64::floor, Gives::Same),
        "exp" => (f64::exp, Gives::Float),
        "expm1" => (f64::exp_m1, Gives::Float),
        "log1p" => (f64::ln_1p, Gives::Float),
        "log_sigmoid" => (|x| -softplus(-x), Gives::Float),
        "mish" => (|x| x * softplus(x).tanh(), Gives::Float),
        "relu6" => (|x| x.clamp(0.0, 6.0), Gives::Same),
        "hardsigmoid" => (|x| (x / 6.0 + 0.5).clamp(0.0, 1.0), Gives::Float),
        "hardswish" => (|x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), Gives::Float),
        "log" => (f64::ln, Gives::Float),
        "sqrt" => (f64::sqrt, Gives::Float),
        "rsqrt" => (|x| 1.0 / x.sqrt(), Gives::Float),
        "reciprocal" => (|x| 1.0 / x, Gives::Float),
        "sin" => (f64::sin, Gives::Float),
        "cos" => (f64::cos, Gives::Float),
        "tanh" => (f64::tanh, Gives::Float),
        "sigmoid" => (sigmoid, Gives::Float),
        "silu" => (|x| x * sigmoid(x), Gives::Float),
        "erf" => (erf, Gives::Float),
        "logical_not" => (|x| f64::from(x == 0.0), Gives::Bool),
        // Integers have other complements; masks are truth values.
        "bitwise_not" => (|x| f64::from(x == 0.0), Gives::Bool),
        _ => return None,
    })
}

fn binary(name: &str) -> Option<(Binary, Gives)> {
    Some(match name {
        "mul" => (|a, b| a * b, Gives::Same),
        "div" => (|a, b| a / b, Gives::Float),
        "pow" => (f64::powf, Gives::Same),
        "remainder" => (|a, b| a - b * (a / b).floor(), Gives::Same),
        "floor_divide" => (|a, b| (a / b).floor(), Gives::Same),
        "maximum" => (f64::max, Gives::Same),
        "minimum" => (f64::min, Gives::Same),
        "eq" => (|a, b| f64::from(a == b), Gives::Bool),
        "ne" => (|a, b| f64::from(a != b), Gives::Bool),
        "lt" => (|a, b| f64::from(a < b), Gives::Bool),
        "le" => (|a, b| f64::from(a <= b), Gives::Bool),
        "gt" => (|a, b| f64::from(a > b), Gives::Bool),
        "ge" => (|a, b| f64::from(a >= b), Gives::Bool),
        "__and" | "__and__" | "bitwise_and" | "logical_and" => (|a, b| f64::from(a != 0.0 && b != 0.0), Gives::Bool),
        "__or" | "__or__" | "bitwise_or" | "logical_or" => (|a, b| f64::from(a != 0.0 || b != 0.0), Gives::Bool),
        "bitwise_xor" | "logical_xor" => (|a, b| f64::from((a != 0.0) != (b != 0.0)), Gives::Bool),
        _ => return None,
    })
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Functions with settings.
fn settled(call: &Call<'_>, name: &str) -> Results {
    let x = call.tensor("self")?;
    let number = |name: &str, default: f64| call.number_or(name, default);
    let y = match name {
        "softplus" => {
            let beta = number("beta", 1.0)?;
            x.map(ElementKind::Float, |x| softplus(beta * x) / beta)
        }
        "elu" => {
            let (alpha, scale, by) = (number("alpha", 1.0)?, number("scale", 1.0)?, number("input_scale", 1.0)?);
            x.map(ElementKind::Float, |x| scale * if x > 0.0 { x } else { alpha * (by * x).exp_m1() })
        }
        "leaky_relu" => {
            let slope = number("negative_slope", 0.01)?;
            x.map(ElementKind::Float, |x| if x > 0.0 { x } else { slope * x })
        }
        _ => {
            let (low, high) = (number("min_val", -1.0)?, number("max_val", 1.0)?);
            x.map(ElementKind::Float, |x| x.max(low).min(high))
        }
    };
    Ok(vec![y.into()])
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// GELU, exact or by the tangent.
fn gelu(x: f64, is_tanh: bool) -> f64 {
    if is_tanh {
        return 0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x)).tanh());
    }
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// The error function: its series near 0, and a continued fraction of its complement further out.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return x.signum() * std::f64::consts::FRAC_2_SQRT_PI * sum;
    }
    let fraction = (1..60).rev().fold(a, |tail, n| a + f64::from(n) / 2.0 / tail);
    x.signum() * (1.0 - (-a * a).exp() / (std::f64::consts::PI.sqrt() * fraction))
}

/// The kind of a result of two operands: floats before integers before truth values.
fn promoted(a: &Tensor, b: &Tensor) -> ElementKind {
    let rank = |kind: ElementKind| match kind {
        ElementKind::Bool => 0,
        ElementKind::Int => 1,
        ElementKind::Float => 2,
    };
    if rank(a.kind) >= rank(b.kind) { a.kind } else { b.kind }
}

/// The sizes that both operands are broadcast to.
fn together(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Refusal> {
    let rank = a.len().max(b.len());
    let size = |sizes: &[usize], d: usize| if d + sizes.len() < rank { 1 } else { sizes[d + sizes.len() - rank] };
    (0..rank)
        .map(|d| match (size(a, d), size(b, d)) {
            (m, n) if m == n || n == 1 => Ok(m),
            (1, n) => Ok(n),
            (m, n) => Err(contradiction(format!("sizes {m} and {n} do not go together"))),
        })
        .collect()
}

fn two(call: &Call<'_>, f: Binary, gives: Gives) -> Results {
    let (f, gives): (Binary, Gives) = match call.text("rounding_mode") {
        None => (f, gives),
        Some("floor") => (|a, b| (a / b).floor(), Gives::Same),
        Some(mode) => return Err(format!("a division that rounds to {mode} is not supported").into()),
    };
    let other = if call.node.arg("exponent").is_some() { "exponent" } else { "other" };
    let (a, b) = (call.operand("self")?, call.operand(other)?);
    let kind = match gives {
        Gives::Float => ElementKind::Float,
        Gives::Bool => ElementKind::Bool,
        Gives::Same => promoted(&a, &b),
    };
    combine(kind, &a, &b, f)
}

fn combine(kind: ElementKind, a: &Tensor, b: &Tensor, f: impl Fn(f64, f64) -> f64) -> Results {
    let sizes = together(&a.sizes, &b.sizes)?;
    if a.sizes == sizes && b.sizes == sizes {
        let data = a.data.iter().zip(&b.data).map(|(&a, &b)| kind.round(f(a, b))).collect();
        return Ok(vec![Tensor::new(kind, sizes, data).into()]);
    }
    Ok(vec![Tensor::from_fn(kind, &sizes, |index| f(a.spread(index), b.spread(index)))?.into()])
}

/// `a + alpha b`, `a - alpha b` or `b - alpha a`
fn sum(call: &Call<'_>, name: &str) -> Results {
    let alpha = call.number_or("alpha", 1.0)?;
    let (a, b) = (call.operand("self")?, call.operand("other")?);
    let kind = promoted(&a, &b);
    match name {
        "add" => combine(kind, &a, &b, |a, b| a + alpha * b),
        "sub" => combine(kind, &a, &b, |a, b| a - alpha * b),
        _ => combine(kind, &a, &b, |a, b| b - alpha * a),
    }
}

fn select(call: &Call<'_>) -> Results {
    let condition = call.tensor("condition")?;
    let (a, b) = (call.operand("self")?, call.operand("other")?);
    let sizes = together(&condition.sizes, &together(&a.sizes, &b.sizes)?)?;
    let pick = |index: &[usize]| {
        if condition.spread(index) != 0.0 { a.spread(index) } else { b.spread(index) }
    };
    Ok(vec![Tensor::from_fn(promoted(&a, &b), &sizes, pick)?.into()])
}

fn masked_fill(call: &Call<'_>) -> Results {
    let (x, mask, value) = (call.tensor("self")?, call.tensor("mask")?, call.operand("value")?);
    let sizes = together(&x.sizes, &mask.sizes)?;
    let pick = |index: &[usize]| if mask.spread(index) != 0.0 { value.data[0] } else { x.spread(index) };
    Ok(vec![Tensor::from_fn(x.kind, &sizes, pick)?.into()])
}

fn clamp(call: &Call<'_>) -> Results {
    let x = call.tensor("self")?;
    if let Some(crate::graph::Arg::Value(_)) = call.node.arg("min")
        && let Ok(low) = call.tensor("min")
    {
        return combine(x.kind, &x, &low, f64::max);
    }
    let (low, high) = (call.number_or("min", f64::NEG_INFINITY)?, call.number_or("max", f64::INFINITY)?);
    Ok(vec![x.map(x.kind, |x| x.max(low).min(high)).into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_published_values() {
        let known = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.4, 0.999_311_486_103_354_9),
        ];
        for (x, y) in known.into_iter().chain([(2.6, 0.999_763_965_583_470_7), (4.0, 0.999_999_984_582_742_1)]) {
            assert!((erf(x) - y).abs() < 1e-12 && (erf(-x) + y).abs() < 1e-12, "{x}: {}", erf(x));
        }
    }
}
