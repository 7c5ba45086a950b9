//! Elementwise ops.

use super::{becomes, stays};

const X: &str = "x: f32[b, h]";
const TY: &str = "f32[b, h]";

/// Statements of one type: `n = neg(x); y = exp(n)` with names without `%`.
fn body(text: &str) -> String {
    let line = |line: &str| {
        let (name, op) = line.split_once('=').unwrap();
        let mut op = op.trim().replace('(', "(%").replace(", ", ", %");
        for attr in ["by", "min", "max"] {
            op = op.replace(&format!("%{attr}="), &format!("{attr}="));
        }
        format!("%{}: {TY} = {op}", name.trim())
    };
    text.split(';').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn sigmoid() {
    becomes(X, &body("n = neg(x); e = exp(n); s = shift(e, by=1.0); y = recip(s)"), TY, &["sigmoid"]);
    let text =
        "n = scale(x, by=-1.0); e = exp(n); s = shift(e, by=1.0); z = scale(s, by=0.0); o = exp(z); y = recip(s)";
    becomes(X, &body(&text.replace(" z = scale(s, by=0.0); o = exp(z);", "")), TY, &["sigmoid"]);
    stays(X, &body("e = exp(x); s = shift(e, by=1.0); y = recip(s)"), TY);
    stays(X, &body("n = neg(x); e = exp(n); s = shift(e, by=1.001); y = recip(s)"), TY);
}

#[test]
fn sigmoid_by_the_tangent() {
    becomes(
        X,
        &body("h = scale(x, by=0.5); t = tanh(h); s = shift(t, by=1.0); y = scale(s, by=0.5)"),
        TY,
        &["sigmoid"],
    );
    becomes(
        X,
        &body("h = scale(x, by=0.5); t = tanh(h); s = scale(t, by=0.5); y = shift(s, by=0.5)"),
        TY,
        &["sigmoid"],
    );
    stays(X, &body("h = scale(x, by=0.25); t = tanh(h); s = scale(t, by=0.5); y = shift(s, by=0.5)"), TY);
}

#[test]
fn swiglu() {
    let text = "n = neg(x); e = exp(n); o = shift(e, by=1.0); r = recip(o); s = mul(x, r); y = mul(s, u)";
    becomes("x: f32[b, h]; u: f32[b, h]", &body(text), TY, &["silu", "mul"]);
}

#[test]
fn silu() {
    becomes(X, &body("n = neg(x); e = exp(n); s = shift(e, by=1.0); y = div(x, s)"), TY, &["silu"]);
    becomes(X, &body("g = sigmoid(x); y = mul(g, x)"), TY, &["silu"]);
    // A gate of another scale is no silu.
    let text = "z = scale(x, by=1.702); n = neg(z); e = exp(n); s = shift(e, by=1.0); g = recip(s); y = mul(x, g)";
    becomes(X, &body(text), TY, &["scale", "sigmoid", "mul"]);
}

#[test]
fn gelu_of_gpt2() {
    let text = "q = square(x); c = mul(q, x); k = scale(c, by=0.044715); i = add(x, k); u = scale(i, by=0.7978845608028654); \
                t = tanh(u); o = shift(t, by=1.0); h = scale(x, by=0.5); y = mul(h, o)";
    becomes(X, &body(text), TY, &["gelu"]);
    // llm.c and JAX: x (1 + 0.044715 x^2), and the half at the end.
    let text = "q = mul(x, x); k = scale(q, by=0.044715); o = shift(k, by=1.0); i = mul(x, o); u = scale(i, by=0.7978845608); \
                t = tanh(u); p = shift(t, by=1.0); m = mul(x, p); y = scale(m, by=0.5)";
    becomes(X, &body(text), TY, &["gelu"]);
    let miss = text.replace("0.044715", "0.044");
    stays(X, &body(&miss), TY);
}

#[test]
fn gelu_by_the_logistic_function() {
    let text = "q = square(x); k = scale(q, by=0.044715); o = shift(k, by=1.0); i = mul(x, o); \
                u = scale(i, by=1.5957691216057308); s = sigmoid(u); y = mul(x, s)";
    becomes(X, &body(text), TY, &["gelu"]);
    // The short form is another function.
    stays(X, &body("u = scale(x, by=1.702); s = sigmoid(u); y = mul(x, s)"), TY);
}

#[test]
fn gelu_by_the_error_function() {
    let text =
        "u = scale(x, by=0.7071067811865476); t = erf(u); o = shift(t, by=1.0); h = scale(x, by=0.5); y = mul(h, o)";
    becomes(X, &body(text), TY, &["gelu_erf"]);
    let text = "u = scale(x, by=0.70710678); t = erf(u); m = mul(x, t); s = add(x, m); y = scale(s, by=0.5)";
    becomes(X, &body(text), TY, &["gelu_erf"]);
    stays(X, &body(&text.replace("0.70710678", "0.7")), TY);
}

#[test]
fn relu_squared() {
    becomes(X, &body("m = at_least(x, min=0.0); y = square(m)"), TY, &["relu_squared"]);
    becomes(X, &body("m = at_least(x, min=0.0); y = mul(m, m)"), TY, &["relu_squared"]);
    stays(X, &body("m = at_least(x, min=0.1); y = square(m)"), TY);
}

#[test]
fn a_value_that_is_read_elsewhere_stays() {
    // The gate is read by another statement: a silu would save nothing.
    stays(X, &body("g = sigmoid(x); s = mul(x, g); y = add(s, g)"), TY);
}
