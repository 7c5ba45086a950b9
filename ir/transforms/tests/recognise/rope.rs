//! Rotary positions.

use super::{becomes, stays};

const ARGS: &str = "x: f32[b, s, n, d]; pos: i32[b, s]";
const TY: &str = "f32[b, s, n, d]";

/// Angles of a head of 4 with the base 10000: `exp(-i ln(10000) / 2)`.
const ANGLES: &str = r#"
    %i: i32[e] = iota(dim=0)
    %if: f32[e] = cast(%i, to=f32)
    %ip: f32[e] = scale(%if, by=-4.605170185988092)
    %freq: f32[e] = exp(%ip)
    %pf: f32[b, s] = cast(%pos, to=f32)
    %ang: f32[b, s, e] = einsum(%pf, %freq, eq="b s, e -> b s e")"#;

/// `x cos + rotate_half(x) sin`, as Hugging Face has it.
const WHOLE: &str = r#"
    %both: f32[b, s, d] = concat(%ang, %ang, dim=2)
    %cos: f32[b, s, d] = cos(%both)
    %sin: f32[b, s, d] = sin(%both)
    %x1: f32[b, s, n, 2] = slice(%x, dim=3, start=0, length=2)
    %x2: f32[b, s, n, 2] = slice(%x, dim=3, start=2, length=2)
    %nx2: f32[b, s, n, 2] = neg(%x2)
    %rot: f32[b, s, n, d] = concat(%nx2, %x1, dim=3)
    %xc: f32[b, s, n, d] = mul(%x, %cos, eq="b s n d, b s d -> b s n d")
    %xs: f32[b, s, n, d] = mul(%rot, %sin, eq="b s n d, b s d -> b s n d")
    %y: f32[b, s, n, d] = add(%xc, %xs)"#;

/// Both halves by themselves, as MaxText has it.
const HALVES: &str = r#"
    %c: f32[b, s, e] = cos(%ang)
    %s: f32[b, s, e] = sin(%ang)
    %x1: f32[b, s, n, 2] = slice(%x, dim=3, start=0, length=2)
    %x2: f32[b, s, n, 2] = slice(%x, dim=3, start=2, length=2)
    %a: f32[b, s, n, 2] = mul(%x1, %c, eq="b s n e, b s e -> b s n e")
    %b: f32[b, s, n, 2] = mul(%x2, %s, eq="b s n e, b s e -> b s n e")
    %p: f32[b, s, n, 2] = sub(%a, %b)
    %cc: f32[b, s, n, 2] = mul(%x2, %c, eq="b s n e, b s e -> b s n e")
    %dd: f32[b, s, n, 2] = mul(%x1, %s, eq="b s n e, b s e -> b s n e")
    %q: f32[b, s, n, 2] = add(%cc, %dd)
    %y: f32[b, s, n, d] = concat(%p, %q, dim=3)"#;

#[test]
fn rotate_half() {
    let text = becomes(ARGS, &format!("{ANGLES}{WHOLE}"), TY, &["rope"]);
    assert!(text.contains("rope(%x, %pos, theta=10000.0)"), "{text}");
    becomes(ARGS, &format!("{ANGLES}{HALVES}"), TY, &["rope"]);
    let divided = ANGLES.replace("by=-4.605170185988092", "by=4.605170185988092").replace(
        "%ang: f32[b, s, e] = einsum(%pf, %freq, eq=\"b s, e -> b s e\")",
        "%ang: f32[b, s, e] = div(%pb, %freq, eq=\"b s e, e -> b s e\")",
    );
    let divided = divided.replace("%ang:", "%pb: f32[b, s, e] = broadcast(%pf, eq=\"b s -> b s e\")\n%ang:");
    becomes(ARGS, &format!("{divided}{HALVES}"), TY, &["rope"]);
}

#[test]
fn heads_before_the_sequence() {
    let body = format!("{ANGLES}{WHOLE}").replace("[b, s, n,", "[b, n, s,").replace("b s n d", "b n s d");
    let args = "x: f32[b, n, s, d]; pos: i32[b, s]";
    becomes(args, &body, "f32[b, n, s, d]", &["permute", "rope", "permute"]);
}

#[test]
fn other_rotations_stay() {
    // Pairs of neighbours, the order of GPT-J.
    let neighbours = r#"
        %c: f32[b, s, e] = cos(%ang)
        %s: f32[b, s, e] = sin(%ang)
        %pairs: f32[b, s, n, e, 2] = reshape(%x)
        %x1: f32[b, s, n, e, 1] = slice(%pairs, dim=4, start=0, length=1)
        %x2: f32[b, s, n, e, 1] = slice(%pairs, dim=4, start=1, length=1)
        %a: f32[b, s, n, e, 1] = mul(%x1, %c, eq="b s n e u, b s e -> b s n e u")
        %b: f32[b, s, n, e, 1] = mul(%x2, %s, eq="b s n e u, b s e -> b s n e u")
        %p: f32[b, s, n, e, 1] = sub(%a, %b)
        %cc: f32[b, s, n, e, 1] = mul(%x2, %c, eq="b s n e u, b s e -> b s n e u")
        %dd: f32[b, s, n, e, 1] = mul(%x1, %s, eq="b s n e u, b s e -> b s n e u")
        %q: f32[b, s, n, e, 1] = add(%cc, %dd)
        %both: f32[b, s, n, e, 2] = concat(%p, %q, dim=4)
        %y: f32[b, s, n, d] = reshape(%both)"#;
    stays(ARGS, &format!("{ANGLES}{neighbours}"), TY);
    // The other direction, other halves, frequencies of another dim, and angles that are not powers.
    stays(ARGS, &format!("{ANGLES}{WHOLE}").replace("concat(%nx2, %x1", "concat(%x1, %nx2"), TY);
    stays(ARGS, &format!("{ANGLES}{WHOLE}").replace("neg(%x2)", "scale(%x2, by=2.0)"), TY);
    stays(ARGS, &format!("{ANGLES}{HALVES}").replace("start=2", "start=1"), TY);
    stays(ARGS, &format!("{ANGLES}{HALVES}").replace("= exp(%ip)", "= sin(%ip)"), TY);
}
