//! Attention.

use super::becomes;

const ARGS: &str = "q: f32[b, s, g, r, d]; k: f32[b, s, g, d]; v: f32[b, s, g, d]; pos: i32[b, s]; seg: i32[b, s]";
const TY: &str = "f32[b, s, g, r, d]";

/// Grouped heads: scores, scale, what masks them, softmax, sum of values.
fn grouped(mask: &str, masked: &str) -> String {
    format!(
        r#"
        %z: f32[b, g, r, s, s] = einsum(%q, %k, eq="b s g r d, b t g d -> b g r s t")
        %c: f32[b, g, r, s, s] = scale(%z, by=0.5)
        {mask}
        %max: f32[b, g, r, s] = reduce_max(%{masked}, eq="b g r s t -> b g r s")
        %low: f32[b, g, r, s, s] = sub(%{masked}, %max, eq="b g r s t, b g r s -> b g r s t")
        %e: f32[b, g, r, s, s] = exp(%low)
        %sum: f32[b, g, r, s] = reduce_sum(%e, eq="b g r s t -> b g r s")
        %w: f32[b, g, r, s, s] = div(%e, %sum, eq="b g r s t, b g r s -> b g r s t")
        %y: f32[b, s, g, r, d] = einsum(%w, %v, eq="b g r s t, b t g d -> b s g r d")"#
    )
}

/// Scores of hidden keys.
const HIDDEN: &str = r#"
        %i: i32[b, g, r, s, s] = iota(dim=3)
        %c0: f32[b, g, r, s, s] = cast(%i, to=f32)
        %zero: f32[b, g, r, s, s] = scale(%c0, by=0.0)
        %low0: f32[b, g, r, s, s] = shift(%zero, by=-1e9)"#;

/// Positions of queries and keys.
const CAUSAL: &str = r#"
        %qp: i32[b, g, r, s, s] = broadcast(%pos, eq="b s -> b g r s t")
        %kp: i32[b, g, r, s, s] = broadcast(%pos, eq="b t -> b g r s t")"#;

/// Keys that a query sees.
const SEE: &str = r#"
        %see: i32[b, g, r, s, s] = less_equal(%kp, %qp)"#;

#[test]
fn causal_attention_of_grouped_heads() {
    let body = grouped(&format!("{CAUSAL}{SEE}{HIDDEN}\n%ms: f32[b, g, r, s, s] = select(%see, %c, %low0)"), "ms");
    let text = becomes(ARGS, &body, TY, &["equal", "attention"]);
    let op = "attention(%q, %k, %v, %pos, %pos, %0, %0, scale=0.5, causal=true)";
    assert!(text.contains(op), "{text}");
    // Negative infinity, as PyTorch has it.
    let infinite =
        body.replace("%low0: f32[b, g, r, s, s] = shift(%zero, by=-1e9)", "%low0: f32[b, g, r, s, s] = log(%zero)");
    becomes(ARGS, &infinite, TY, &["equal", "attention"]);
    // Later positions are visible, or the hidden scores are not low.
    stays_softmax(&body.replace("less_equal(%kp, %qp)", "less_equal(%qp, %kp)"));
    stays_softmax(&body.replace("by=-1e9", "by=-10.0"));
}

/// Only the softmax is recognised.
#[track_caller]
fn stays_softmax(body: &str) {
    let (text, found) = super::recognised(super::model(ARGS, body, "y", TY));
    let ops: Vec<&str> = found.iter().map(|found| found.op).collect();
    assert_eq!(ops, ["softmax"], "{text}");
}

#[test]
fn masks_are_added_too() {
    let bias = format!(
        "{CAUSAL}{HIDDEN}
        %hide: i32[b, g, r, s, s] = less(%qp, %kp)
        %bias: f32[b, g, r, s, s] = select(%hide, %low0)
        %ms: f32[b, g, r, s, s] = add(%c, %bias)"
    );
    becomes(ARGS, &grouped(&bias, "ms"), TY, &["equal", "attention"]);
    let product = format!(
        "{CAUSAL}
        %hide: i32[b, g, r, s, s] = less(%qp, %kp)
        %hf: f32[b, g, r, s, s] = cast(%hide, to=f32)
        %bias: f32[b, g, r, s, s] = scale(%hf, by=-10000.0)
        %ms: f32[b, g, r, s, s] = add(%bias, %c)"
    );
    becomes(ARGS, &grouped(&product, "ms"), TY, &["equal", "attention"]);
}

#[test]
fn segments_and_positions() {
    let both = format!(
        "{CAUSAL}{SEE}{HIDDEN}
        %qs: i32[b, g, r, s, s] = broadcast(%seg, eq=\"b s -> b g r s t\")
        %ks: i32[b, g, r, s, s] = broadcast(%seg, eq=\"b t -> b g r s t\")
        %same: i32[b, g, r, s, s] = equal(%qs, %ks)
        %m1: f32[b, g, r, s, s] = select(%see, %c, %low0)
        %ms: f32[b, g, r, s, s] = select(%same, %m1, %low0)"
    );
    let text = becomes(ARGS, &grouped(&both, "ms"), TY, &["attention"]);
    assert!(text.contains("(%q, %k, %v, %pos, %pos, %seg, %seg, scale=0.5, causal=true)"), "{text}");
}

/// Heads without groups, in the order of Hugging Face: `[b, n, s, d]`, the scale on the queries, a mask of `[s, s]`.
const HEADS: &str = r#"
    %qs: f32[b, s, n, d] = scale(%q, by=0.5)
    %qh: f32[b, n, s, d] = permute(%qs, eq="b s n d -> b n s d")
    %kh: f32[b, n, s, d] = permute(%k, eq="b s n d -> b n s d")
    %vh: f32[b, n, s, d] = permute(%v, eq="b s n d -> b n s d")
    %z: f32[b, n, s, s] = einsum(%qh, %kh, eq="b n s d, b n t d -> b n s t")
    %i: i32[s, s] = iota(dim=0)
    %j: i32[s, s] = iota(dim=1)
    %hide: i32[s, s] = less(%i, %j)
    %hf: f32[s, s] = cast(%hide, to=f32)
    %bias: f32[s, s] = scale(%hf, by=-1e30)
    %ms: f32[b, n, s, s] = add(%z, %bias, eq="b n s t, s t -> b n s t")
    %max: f32[b, n, s] = reduce_max(%ms, eq="b n s t -> b n s")
    %low: f32[b, n, s, s] = sub(%ms, %max, eq="b n s t, b n s -> b n s t")
    %e: f32[b, n, s, s] = exp(%low)
    %sum: f32[b, n, s] = reduce_sum(%e, eq="b n s t -> b n s")
    %w: f32[b, n, s, s] = div(%e, %sum, eq="b n s t, b n s -> b n s t")
    %oh: f32[b, n, s, d] = einsum(%w, %vh, eq="b n s t, b n t d -> b n s d")
    %y: f32[b, s, n, d] = permute(%oh, eq="b n s d -> b s n d")"#;

#[test]
fn heads_without_groups() {
    let args = "q: f32[b, s, n, d]; k: f32[b, s, n, d]; v: f32[b, s, n, d]";
    let text = becomes(args, HEADS, "f32[b, s, n, d]", &["reshape", "iota", "equal", "attention", "reshape"]);
    assert!(text.contains("scale=0.5, causal=true"), "{text}");
    let full = HEADS
        .lines()
        .filter(|line| !["%i:", "%j:", "%hide:", "%hf:", "%bias:", "%ms:"].iter().any(|name| line.contains(name)));
    let full = full.collect::<Vec<_>>().join("\n").replace("%ms", "%z");
    let text = becomes(args, &full, "f32[b, s, n, d]", &["reshape", "iota", "iota", "attention", "reshape"]);
    assert!(text.contains("causal=false"), "{text}");
    stays_only_softmax(
        args,
        &HEADS.replace("einsum(%w, %vh, eq=\"b n s t, b n t d", "einsum(%w, %vh, eq=\"b n t s, b n t d"),
    );
}

#[track_caller]
fn stays_only_softmax(args: &str, body: &str) {
    let (text, found) = super::recognised(super::model(args, body, "y", "f32[b, s, n, d]"));
    assert_eq!(found.iter().map(|found| found.op).collect::<Vec<_>>(), ["softmax"], "{text}");
}

#[test]
fn repeated_keys_are_groups() {
    let repeat = |name: &str| {
        format!(
            "%{name}r: f32[b, s, g, r, d] = broadcast(%{name}, eq=\"b s g d -> b s g r d\")
             %{name}n: f32[b, s, n, d] = reshape(%{name}r)"
        )
    };
    let body = format!("{}\n{}\n{}", repeat("k"), repeat("v"), HEADS.replace("(%k,", "(%kn,").replace("(%v,", "(%vn,"));
    let args = "q: f32[b, s, n, d]; k: f32[b, s, g, d]; v: f32[b, s, g, d]";
    let text = becomes(args, &body, "f32[b, s, n, d]", &["reshape", "iota", "equal", "attention", "reshape"]);
    assert!(text.contains("%k, %v,"), "{text}");
}

#[test]
fn weights_that_are_returned_keep_their_statements() {
    let body = grouped(&format!("{CAUSAL}{SEE}{HIDDEN}\n%ms: f32[b, g, r, s, s] = select(%see, %c, %low0)"), "ms");
    let body = body.replace("%y: f32[b, s, g, r, d] = einsum(%w, %v", "%o: f32[b, s, g, r, d] = einsum(%w, %v");
    let body = format!("{body}\n%y: f32[b, g, r, s, s] = scale(%w, by=1.0)\n%p: f32[b, s, g, r, d] = neg(%o)");
    let (text, found) = super::recognised(super::model(ARGS, &body, "y", "f32[b, g, r, s, s]"));
    assert_eq!(found.iter().map(|found| found.op).collect::<Vec<_>>(), ["softmax"], "{text}");
}

/// Scores `[b, g, r, s, t]` under masks of `[b, s, t]`, which `%bias` adds.
fn with_bias(bias: &str) -> String {
    let masks = r#"
        %qp: i32[b, s, s] = broadcast(%pos, eq="b s -> b s t")
        %kp: i32[b, s, s] = broadcast(%pos, eq="b t -> b s t")
        %see: i32[b, s, s] = less_equal(%kp, %qp)
        %qs: i32[b, s, s] = broadcast(%seg, eq="b s -> b s t")
        %ks: i32[b, s, s] = broadcast(%seg, eq="b t -> b s t")
        %same: i32[b, s, s] = equal(%qs, %ks)
        %f1: f32[b, s, s] = cast(%see, to=f32)
        %f2: f32[b, s, s] = cast(%same, to=f32)
        %both: f32[b, s, s] = mul(%f1, %f2)"#;
    let add = r#"%ms: f32[b, g, r, s, s] = add(%c, %bias, eq="b g r s t, b s t -> b g r s t")"#;
    grouped(&format!("{masks}\n{bias}\n{add}"), "ms")
}

#[test]
fn products_of_masks() {
    let one_less =
        "%o: f32[b, s, s] = neg(%both)\n%h: f32[b, s, s] = shift(%o, by=1.0)\n%bias: f32[b, s, s] = scale(%h, by=-1e9)";
    let less_one = "%h: f32[b, s, s] = shift(%both, by=-1.0)\n%bias: f32[b, s, s] = scale(%h, by=1e9)";
    let apart = "%h: f32[b, s, s] = scale(%both, by=1e9)\n%bias: f32[b, s, s] = shift(%h, by=-1e9)";
    for bias in [one_less, less_one, apart] {
        let text = becomes(ARGS, &with_bias(bias), TY, &["attention"]);
        assert!(text.contains("%pos, %pos, %seg, %seg, scale=0.5, causal=true"), "{text}");
    }
    // A visible key has another score, or a hidden one has a score that is not low.
    stays_softmax(&with_bias(&apart.replace("by=-1e9", "by=-2e9")));
    stays_softmax(&with_bias(&less_one.replace("by=1e9", "by=-1e9")));
    stays_softmax(&with_bias(&one_less.replace("by=-1e9", "by=-9.0")));
}

#[test]
fn the_scale_may_be_anywhere() {
    let scaled = |body: &str, x: &str, by: f64| {
        let dims = if x == "q" { "b, s, g, r, d" } else { "b, s, g, d" };
        format!(
            "%{x}s: f32[{dims}] = scale(%{x}, by={by})\n{}",
            body.replace(&format!("(%{x},"), &format!("(%{x}s,")).replace(&format!(", %{x},"), &format!(", %{x}s,"))
        )
    };
    let bare = grouped("", "c");
    let without = bare.replace("%c: f32[b, g, r, s, s] = scale(%z, by=0.5)", "").replace("%c", "%z");
    let both = scaled(&scaled(&without, "q", 0.5), "k", 0.25);
    for (body, scale) in
        [(scaled(&without, "k", 0.25), 0.25), (both, 0.125), (scaled(&bare, "q", 0.5), 0.25), (without, 1.0)]
    {
        let text = becomes(ARGS, &body, TY, &["iota", "iota", "attention"]);
        assert!(text.contains(&format!("scale={scale:?}, causal=false")), "{text}");
    }
}

/// Attention whose scores are `[b, s, g, r, t]`, the order in which its dropout counts.
fn dropped(scores: &str) -> String {
    let kept = scores.trim_end_matches(" t");
    let ty = |labels: &str| labels.replace('t', "s").replace(' ', ", ");
    format!(
        r#"
        %z: f32[{all}] = einsum(%q, %k, eq="b s g r d, b t g d -> {scores}")
        %c: f32[{all}] = scale(%z, by=0.5)
        %max: f32[{rows}] = reduce_max(%c, eq="{scores} -> {kept}")
        %low: f32[{all}] = sub(%c, %max, eq="{scores}, {kept} -> {scores}")
        %e: f32[{all}] = exp(%low)
        %sum: f32[{rows}] = reduce_sum(%e, eq="{scores} -> {kept}")
        %w: f32[{all}] = div(%e, %sum, eq="{scores}, {kept} -> {scores}")
        %dw: f32[{all}] = dropout(%w, p=0.25, path="w")
        %y: f32[b, s, g, r, d] = einsum(%dw, %v, eq="{scores}, b t g d -> b s g r d")"#,
        all = ty(scores),
        rows = ty(kept),
    )
}

#[test]
fn dropout_of_weights_in_the_order_of_the_op() {
    let text = becomes(ARGS, &dropped("b s g r t"), TY, &["iota", "iota", "attention"]);
    assert!(text.contains("p=0.25, path=\"w\""), "{text}");
    // Other random numbers would drop other weights.
    stays_softmax(&dropped("b g r s t"));
    stays_softmax(&dropped("b s r g t"));
}

#[test]
fn other_attention_stays() {
    // Capped scores, and a window of keys.
    let capped = "%s0: f32[b, g, r, s, s] = scale(%c, by=0.02)\n%s1: f32[b, g, r, s, s] = tanh(%s0)\n%ms: f32[b, g, r, s, s] = scale(%s1, by=50.0)";
    stays_softmax(&grouped(capped, "ms"));
    let window = with_bias(
        "%qf: f32[b, s, s] = cast(%qp, to=f32)
         %kf: f32[b, s, s] = cast(%kp, to=f32)
         %first: f32[b, s, s] = shift(%qf, by=-4.0)
         %near: i32[b, s, s] = less(%first, %kf)
         %f3: f32[b, s, s] = cast(%near, to=f32)
         %m3: f32[b, s, s] = mul(%both, %f3)
         %h: f32[b, s, s] = shift(%m3, by=-1.0)
         %bias: f32[b, s, s] = scale(%h, by=1e9)",
    );
    stays_softmax(&window);
    // The softmax over queries.
    let turned = grouped("", "c")
        .replace("reduce_max(%c, eq=\"b g r s t -> b g r s\")", "reduce_max(%c, eq=\"b g r s t -> b g r t\")");
    let (_, found) = super::recognised(super::model(
        ARGS,
        &turned.replace(
            "b g r s t, b g r s -> b g r s t\")\n        %e",
            "b g r s t, b g r t -> b g r s t\")\n        %e",
        ),
        "y",
        TY,
    ));
    assert_eq!(found, []);
}

#[test]
fn a_joint_parameter_stays_one_product() {
    let part = |name: &str, start: u64| {
        format!(
            "%{name}0: f32[b, s, 24] = slice(%all, dim=2, start={start}, length=24)
             %{name}: f32[b, s, n, d] = reshape(%{name}0)\n"
        )
    };
    let body = format!(
        "%product: f32[b, s, 72] = einsum(%x, %matrix, eq=\"b s h, h k -> b s k\")
         %all: f32[b, s, 72] = add(%product, %row, eq=\"b s k, k -> b s k\")
         {}{}{}{HEADS}",
        part("q", 0),
        part("k", 24),
        part("v", 48)
    );
    let file = super::model("x: f32[b, s, h]; matrix: f32[h, 72]; row: f32[72]", &body, "y", "f32[b, s, n, d]");
    let (text, found) = super::recognised(file);
    assert_eq!(found.iter().map(|found| found.op).collect::<Vec<_>>(), ["attention"], "{text}");
    let count = |op: &str| text.matches(&format!("= {op}(")).count();
    assert_eq!(["einsum", "add", "slice"].map(count), [1, 1, 3], "{text}");
}
