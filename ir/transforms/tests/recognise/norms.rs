//! Norms, softmax, losses and the embedding.

use super::{becomes, stays};

const X: &str = "x: f32[b, s, h]; gamma: f32[h]; beta: f32[h]";
const TY: &str = "f32[b, s, h]";

#[test]
fn rms_norm() {
    let llama = r#"
        %q: f32[b, s, h] = mul(%x, %x)
        %m: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
        %a: f32[b, s] = scale(%m, by=0.125)
        %e: f32[b, s] = shift(%a, by=1e-5)
        %r: f32[b, s] = rsqrt(%e)
        %n: f32[b, s, h] = mul(%x, %r, eq="b s h, b s -> b s h")
        %y: f32[b, s, h] = mul(%n, %gamma, eq="b s h, h -> b s h")"#;
    let text = becomes(X, llama, TY, &["rms_norm"]);
    assert!(text.contains("rms_norm(%x, %gamma, eps=1e-5)"), "{text}");
    // Kept dims, a division by the root, and gamma as the first operand.
    let kept = r#"
        %q: f32[b, s, h] = square(%x)
        %m: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
        %k: f32[b, s, 1] = reshape(%m)
        %a: f32[b, s, 1] = scale(%k, by=0.125)
        %e: f32[b, s, 1] = shift(%a, by=1e-5)
        %r: f32[b, s, 1] = sqrt(%e)
        %l: f32[b, s] = reshape(%r)
        %f: f32[b, s, h] = broadcast(%l, eq="b s -> b s h")
        %n: f32[b, s, h] = div(%x, %f)
        %g: f32[b, s, h] = broadcast(%gamma, eq="h -> b s h")
        %y: f32[b, s, h] = mul(%g, %n)"#;
    becomes(X, kept, TY, &["rms_norm"]);
    // A mean over another number of elements.
    stays(X, &llama.replace("0.125", "0.25"), TY);
    // A mean over the sequence.
    let other = llama.replace(r#"reduce_sum(%q, eq="b s h -> b s")"#, r#"reduce_sum(%q, eq="b s h -> b h")"#);
    let other = other.replace("f32[b, s] =", "f32[b, h] =").replace("b s h, b s -> b s h", "b s h, b h -> b s h");
    stays(X, &other, TY);
}

/// A norm by the mean of the squares, which ends in a product of rows.
const NORMAL: &str = r#"
        %q: f32[b, s, h] = square(%x)
        %m: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
        %a: f32[b, s] = scale(%m, by=0.125)
        %e: f32[b, s] = shift(%a, by=1e-5)
        %r: f32[b, s] = rsqrt(%e)
        %y: f32[b, s, h] = mul(%x, %r, eq="b s h, b s -> b s h")"#;

#[test]
fn norms_without_gains_get_ones() {
    let text = becomes(X, NORMAL, TY, &["iota", "scale", "shift", "rms_norm"]);
    assert!(text.contains("shift(%1, by=1.0)"), "{text}");
    // All elements have one gain.
    let scaled = NORMAL.replace("%y: f32[b, s, h] = mul(", "%n: f32[b, s, h] = mul(");
    let text = becomes(
        X,
        &format!("{scaled}\n%y: f32[b, s, h] = scale(%n, by=2.0)"),
        TY,
        &["iota", "scale", "shift", "rms_norm"],
    );
    assert!(text.contains("by=2.0"), "{text}");
    // A normal that two products read.
    let twice = "%z: f32[b, s, h] = mul(%n, %gamma, eq=\"b s h, h -> b s h\")\n%y: f32[b, s, h] = add(%z, %n)";
    becomes(X, &format!("{scaled}\n{twice}"), TY, &["iota", "scale", "shift", "rms_norm", "mul", "add"]);
}

#[test]
fn gains_of_one_and_more() {
    let plus = NORMAL.replace("%y: f32[b, s, h] = mul(", "%n: f32[b, s, h] = mul(")
        + r#"
        %w: f32[h] = shift(%gamma, by=1.0)
        %y: f32[b, s, h] = mul(%n, %w, eq="b s h, h -> b s h")"#;
    becomes(X, &plus, TY, &["shift", "rms_norm"]);
    let repeated = plus.replace(
        "%w: f32[h] = shift(%gamma",
        "%g: f32[b, s, h] = broadcast(%gamma, eq=\"h -> b s h\")\n%w: f32[b, s, h] = shift(%g",
    );
    becomes(X, &repeated.replace("mul(%n, %w, eq=\"b s h, h -> b s h\")", "mul(%n, %w)"), TY, &["shift", "rms_norm"]);
    // In f32 from bf16, where the rounding of 1 + w would lose w.
    let narrow = plus
        .replace("square(%x)", "square(%c)")
        .replace("mul(%x", "mul(%c")
        .replace("(%gamma", "(%wide")
        .replace("%y: f32", "%z: f32");
    let casts = "%c: f32[b, s, h] = cast(%x, to=f32)\n%wide: f32[h] = cast(%gamma, to=f32)";
    let body = format!("{casts}{narrow}\n%y: bf16[b, s, h] = cast(%z, to=bf16)");
    becomes("x: bf16[b, s, h]; gamma: bf16[h]", &body, "bf16[b, s, h]", &["cast", "cast", "shift", "rms_norm", "cast"]);
}

#[test]
fn roots_as_powers() {
    let power = "%g: f32[b, s] = log(%e)\n%p: f32[b, s] = scale(%g, by=-0.5)\n%r: f32[b, s] = exp(%p)";
    let body = NORMAL.replace("%r: f32[b, s] = rsqrt(%e)", power);
    becomes(X, &body, TY, &["iota", "scale", "shift", "rms_norm"]);
    stays(X, &body.replace("by=-0.5", "by=-0.25"), TY);
}

#[test]
fn squares_as_a_product_of_rows() {
    let body = NORMAL.replace("%q: f32[b, s, h] = square(%x)", "");
    let body = body.replace("reduce_sum(%q, eq=\"b s h -> b s\")", "einsum(%x, %x, eq=\"b s h, b s h -> b s\")");
    becomes(X, &body, TY, &["iota", "scale", "shift", "rms_norm"]);
}

#[test]
fn other_norms_stay() {
    let without = NORMAL.replace("%e: f32[b, s] = shift(%a, by=1e-5)", "").replace("%r: f32[b, s] = rsqrt(%e)", "");
    // eps beside the root, and the maximum with eps.
    let beside = "%o: f32[b, s] = sqrt(%a)\n%e: f32[b, s] = shift(%o, by=1e-5)\n%r: f32[b, s] = recip(%e)\n%y:";
    stays(X, &without.replace("%y:", beside), TY);
    let most = "%e: f32[b, s] = at_least(%a, min=1e-5)\n%r: f32[b, s] = rsqrt(%e)\n%y:";
    stays(X, &without.replace("%y:", most), TY);
    // The deviation of one tensor on another.
    stays("x: f32[b, s, h]; z: f32[b, s, h]", &NORMAL.replace("mul(%x", "mul(%z"), TY);
    // The square in place of its root.
    stays(X, &NORMAL.replace("rsqrt(%e)", "recip(%e)"), TY);
}

#[test]
fn rms_norm_of_bf16_in_f32() {
    let body = r#"
        %c: f32[b, s, h] = cast(%x, to=f32)
        %q: f32[b, s, h] = square(%c)
        %m: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
        %a: f32[b, s] = scale(%m, by=0.125)
        %e: f32[b, s] = shift(%a, by=1e-6)
        %r: f32[b, s] = rsqrt(%e)
        %n: f32[b, s, h] = mul(%c, %r, eq="b s h, b s -> b s h")
        %l: bf16[b, s, h] = cast(%n, to=bf16)
        %y: bf16[b, s, h] = mul(%l, %gamma, eq="b s h, h -> b s h")"#;
    becomes("x: bf16[b, s, h]; gamma: bf16[h]", body, "bf16[b, s, h]", &["rms_norm"]);
    // Gains in f32, and the result too: the operand is converted before.
    let wide = body
        .replace("%l: bf16[b, s, h] = cast(%n, to=bf16)", "")
        .replace("%y: bf16", "%y: f32")
        .replace("mul(%l", "mul(%n");
    becomes("x: bf16[b, s, h]; gamma: f32[h]", &wide, TY, &["cast", "rms_norm"]);
}

#[test]
fn layer_norm() {
    let two_pass = r#"
        %t: f32[b, s] = reduce_sum(%x, eq="b s h -> b s")
        %mean: f32[b, s] = scale(%t, by=0.125)
        %c: f32[b, s, h] = sub(%x, %mean, eq="b s h, b s -> b s h")
        %q: f32[b, s, h] = square(%c)
        %u: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
        %var: f32[b, s] = scale(%u, by=0.125)
        %e: f32[b, s] = shift(%var, by=1e-5)
        %r: f32[b, s] = rsqrt(%e)
        %n: f32[b, s, h] = mul(%c, %r, eq="b s h, b s -> b s h")
        %g: f32[b, s, h] = mul(%n, %gamma, eq="b s h, h -> b s h")
        %y: f32[b, s, h] = add(%g, %beta, eq="b s h, h -> b s h")"#;
    becomes(X, two_pass, TY, &["layer_norm"]);
    // 1 / sqrt, the centred rows twice, the mean of scaled elements.
    let twice = two_pass
        .replace("%r: f32[b, s] = rsqrt(%e)", "%o: f32[b, s] = sqrt(%e)\n%r: f32[b, s] = recip(%o)")
        .replace("%n: f32", "%c2: f32[b, s, h] = sub(%x, %mean, eq=\"b s h, b s -> b s h\")\n%n: f32")
        .replace("mul(%c, %r", "mul(%c2, %r");
    becomes(X, &twice, TY, &["layer_norm"]);
    // Without shifts, and without gains.
    let unshifted: Vec<&str> = two_pass.lines().filter(|line| !line.contains("%y:")).collect();
    let unshifted = unshifted.join("\n").replace("%g:", "%y:");
    becomes(X, &unshifted, TY, &["iota", "scale", "layer_norm"]);
    let bare: Vec<&str> = unshifted.lines().filter(|line| !line.contains("%y:")).collect();
    let text = becomes(
        X,
        &bare.join("\n").replace("%n:", "%y:"),
        TY,
        &["iota", "scale", "shift", "iota", "scale", "layer_norm"],
    );
    assert!(text.contains("by=1.0"), "{text}");
    // A deviation of n - 1 elements.
    stays(
        X,
        &two_pass.replace("%var: f32[b, s] = scale(%u, by=0.125)", "%var: f32[b, s] = scale(%u, by=0.142857)"),
        TY,
    );
    // E[x^2] - E[x]^2 differs where the mean is large.
    let one_pass = two_pass.replace("square(%c)", "square(%x)").replace(
        "%var: f32[b, s] = scale(%u, by=0.125)",
        "%v0: f32[b, s] = scale(%u, by=0.125)\n%v1: f32[b, s] = square(%mean)\n%var: f32[b, s] = sub(%v0, %v1)",
    );
    stays(X, &one_pass, TY);
}

#[test]
fn a_norm_gives_its_statistics() {
    let body = r#"
        %q: f32[b, s, h] = square(%x)
        %m: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
        %a: f32[b, s] = scale(%m, by=0.125)
        %e: f32[b, s] = shift(%a, by=1e-5)
        %r: f32[b, s] = rsqrt(%e)
        %n: f32[b, s, h] = mul(%x, %r, eq="b s h, b s -> b s h")
        %z: f32[b, s, h] = mul(%n, %gamma, eq="b s h, h -> b s h")
        %y: f32[b, s, h] = add(%z, %r, eq="b s h, b s -> b s h")"#;
    let text = becomes(X, body, TY, &["rms_norm", "add"]);
    assert!(text.contains("%z: f32[b, s, h], %r: f32[b, s] = rms_norm"), "{text}");
}

#[test]
fn softmax() {
    let body = r#"
        %m: f32[b, s] = reduce_max(%x, eq="b s h -> b s")
        %c: f32[b, s, h] = sub(%x, %m, eq="b s h, b s -> b s h")
        %e: f32[b, s, h] = exp(%c)
        %t: f32[b, s] = reduce_sum(%e, eq="b s h -> b s")
        %y: f32[b, s, h] = div(%e, %t, eq="b s h, b s -> b s h")"#;
    becomes(X, body, TY, &["softmax"]);
    let recip =
        body.replace("%y: f32[b, s, h] = div(%e, %t,", "%i: f32[b, s] = recip(%t)\n%y: f32[b, s, h] = mul(%e, %i,");
    becomes(X, &recip, TY, &["softmax"]);
    // Without the maximum the exponentials overflow; a maximum over another dim is another function.
    let bare =
        body.lines().filter(|line| !line.contains("%m:") && !line.contains("%c:")).collect::<Vec<_>>().join("\n");
    stays(X, &bare.replace("exp(%c)", "exp(%x)"), TY);
    let across = body.replace(r#"reduce_sum(%e, eq="b s h -> b s")"#, r#"reduce_sum(%e, eq="b s h -> b h")"#);
    stays(
        X,
        &across
            .replace("%t: f32[b, s]", "%t: f32[b, h]")
            .replace("div(%e, %t, eq=\"b s h, b s", "div(%e, %t, eq=\"b s h, b h"),
        TY,
    );
}

const LOGITS: &str = "x: f32[b, s, v]; lab: i32[b, s]";

const LOG_SOFTMAX: &str = r#"
    %m: f32[b, s] = reduce_max(%x, eq="b s v -> b s")
    %c: f32[b, s, v] = sub(%x, %m, eq="b s v, b s -> b s v")
    %e: f32[b, s, v] = exp(%c)
    %t: f32[b, s] = reduce_sum(%e, eq="b s v -> b s")
    %l: f32[b, s] = log(%t)
    %p: f32[b, s, v] = sub(%c, %l, eq="b s v, b s -> b s v")"#;

#[test]
fn cross_entropy() {
    let picked = r#"
        %k: f32[b, s] = pick(%p, %lab)
        %n: f32[b, s] = neg(%k)
        %y: f32[] = reduce_sum(%n, eq="b s -> ()")"#;
    becomes(LOGITS, &format!("{LOG_SOFTMAX}{picked}"), "f32[]", &["cross_entropy"]);
    let one_hot = r#"
        %lv: i32[b, s, v] = broadcast(%lab, eq="b s -> b s v")
        %iv: i32[b, s, v] = iota(dim=2)
        %eq: i32[b, s, v] = equal(%lv, %iv)
        %hot: f32[b, s, v] = cast(%eq, to=f32)
        %k: f32[b, s, v] = mul(%hot, %p)
        %u: f32[b, s] = reduce_sum(%k, eq="b s v -> b s")
        %w: f32[] = reduce_sum(%u, eq="b s -> ()")
        %y: f32[] = scale(%w, by=-1.0)"#;
    becomes(LOGITS, &format!("{LOG_SOFTMAX}{one_hot}"), "f32[]", &["cross_entropy"]);
    // Rows whose label is ignored would add their log of the sum.
    let unmasked = r#"
        %lse: f32[b, s] = add(%l, %m)
        %k: f32[b, s] = pick(%x, %lab)
        %n: f32[b, s] = sub(%lse, %k)
        %y: f32[] = reduce_sum(%n, eq="b s -> ()")"#;
    stays(
        LOGITS,
        &format!("{LOG_SOFTMAX}{unmasked}").replace("%p: f32[b, s, v] = sub(%c, %l, eq=\"b s v, b s -> b s v\")", ""),
        "f32[]",
    );
    // The mean, in one factor with the sign.
    let mean =
        picked.replace("%n: f32[b, s] = neg(%k)", "").replace("%y: f32[] = reduce_sum(%n", "%n: f32[] = reduce_sum(%k");
    let mean = format!("{LOG_SOFTMAX}{mean}\n%y: f32[] = scale(%n, by=-0.0625)");
    let text = becomes(LOGITS, &mean, "f32[]", &["cross_entropy", "scale"]);
    assert!(text.contains("by=0.0625"), "{text}");
    // One-hot rows by a choice, and a product that sums over all.
    let product = r#"
        %lv: i32[b, s, v] = broadcast(%lab, eq="b s -> b s v")
        %iv: i32[b, s, v] = iota(dim=2)
        %eq: i32[b, s, v] = equal(%iv, %lv)
        %fi: f32[b, s, v] = iota(dim=2)
        %zero: f32[b, s, v] = scale(%fi, by=0.0)
        %one: f32[b, s, v] = shift(%zero, by=1.0)
        %hot: f32[b, s, v] = select(%eq, %one, %zero)
        %w: f32[] = einsum(%p, %hot, eq="b s v, b s v -> ()")
        %y: f32[] = neg(%w)"#;
    becomes(LOGITS, &format!("{LOG_SOFTMAX}{product}"), "f32[]", &["cross_entropy"]);
    // The log of the softmax's entry, which underflows.
    let log = r#"
        %m: f32[b, s] = reduce_max(%x, eq="b s v -> b s")
        %c: f32[b, s, v] = sub(%x, %m, eq="b s v, b s -> b s v")
        %e: f32[b, s, v] = exp(%c)
        %t: f32[b, s] = reduce_sum(%e, eq="b s v -> b s")
        %p: f32[b, s, v] = div(%e, %t, eq="b s v, b s -> b s v")
        %k: f32[b, s] = pick(%p, %lab)
        %g: f32[b, s] = log(%k)
        %n: f32[b, s] = neg(%g)
        %y: f32[] = reduce_sum(%n, eq="b s -> ()")"#;
    becomes(LOGITS, log, "f32[]", &["softmax", "pick", "log", "neg", "reduce_sum"]);
    // Only the entries of one sample.
    let losses =
        picked.replace("%y: f32[] = reduce_sum(%n, eq=\"b s -> ()\")", "%y: f32[s] = reduce_sum(%n, eq=\"b s -> s\")");
    stays(LOGITS, &format!("{LOG_SOFTMAX}{losses}"), "f32[s]");
}

#[test]
fn embedding() {
    let body = r#"
        %iv: i32[b, s, v] = broadcast(%ids, eq="b s -> b s v")
        %nv: i32[b, s, v] = iota(dim=2)
        %eq: i32[b, s, v] = equal(%iv, %nv)
        %hot: f32[b, s, v] = cast(%eq, to=f32)
        %y: f32[b, s, h] = einsum(%hot, %table, eq="b s v, v h -> b s h")"#;
    let args = "ids: i32[b, s]; table: f32[v, h]";
    becomes(args, body, TY, &["embedding"]);
    let swapped = body
        .replace("equal(%iv, %nv)", "equal(%nv, %iv)")
        .replace(r#"(%hot, %table, eq="b s v, v h"#, r#"(%table, %hot, eq="v h, b s v"#);
    becomes(args, &swapped, TY, &["embedding"]);
    stays(args, &body.replace("equal(", "less_equal("), TY);
    // Rows that are taken; columns are not.
    becomes(args, "%y: f32[b, s, h] = take(%table, %ids, dim=0)", TY, &["embedding"]);
    stays("ids: i32[b, s]; table: f32[h, v]", "%y: f32[h, b, s] = take(%table, %ids, dim=1)", "f32[h, b, s]");
}
