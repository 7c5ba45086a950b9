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
