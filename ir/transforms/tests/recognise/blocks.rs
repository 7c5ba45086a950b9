//! Blocks of models in primitives.

use super::shuffle::{shuffled, statements};
use super::{model, recognised};
use ir::graph::{Model, SectionKind};
use ir::text::File;
use meshwright_transforms::recognise::recognise;

const ARGS: &str = "x: f32[b, s, h]; pos: i32[b, s]; seg: i32[b, s]; norm1: f32[h]; wq: f32[h, g, r, d]; wk: f32[h, g, d]; \
                    wv: f32[h, g, d]; wo: f32[g, r, d, h]; norm2: f32[h]; gate: f32[h, v]; up: f32[h, v]; down: f32[v, h]";

fn norm(y: &str, x: &str, gamma: &str) -> String {
    format!(
        r#"
        %{y}_q: f32[b, s, h] = square(%{x})
        %{y}_t: f32[b, s] = reduce_sum(%{y}_q, eq="b s h -> b s")
        %{y}_m: f32[b, s] = scale(%{y}_t, by=0.125)
        %{y}_e: f32[b, s] = shift(%{y}_m, by=1e-5)
        %{y}_r: f32[b, s] = rsqrt(%{y}_e)
        %{y}_n: f32[b, s, h] = mul(%{x}, %{y}_r, eq="b s h, b s -> b s h")
        %{y}: f32[b, s, h] = mul(%{gamma}, %{y}_n, eq="h, b s h -> b s h")"#
    )
}

fn rope(y: &str, x: &str, heads: &str) -> String {
    let (axes, eq) = (format!("b, s, {heads}"), format!("b s {}", heads.replace(',', "")));
    format!(
        r#"
        %{y}_1: f32[{axes}, 2] = slice(%{x}, dim={dim}, start=0, length=2)
        %{y}_2: f32[{axes}, 2] = slice(%{x}, dim={dim}, start=2, length=2)
        %{y}_m: f32[{axes}, 2] = neg(%{y}_2)
        %{y}_t: f32[{axes}, d] = concat(%{y}_m, %{y}_1, dim={dim})
        %{y}_c: f32[{axes}, d] = mul(%{x}, %cos, eq="{eq} d, b s d -> {eq} d")
        %{y}_s: f32[{axes}, d] = mul(%{y}_t, %sin, eq="{eq} d, b s d -> {eq} d")
        %{y}: f32[{axes}, d] = add(%{y}_c, %{y}_s)"#,
        dim = 2 + heads.split(',').count()
    )
}

/// A layer of LLaMA in which every op is spelt out.
fn layer() -> File {
    let angles = r#"
        %i: i32[e] = iota(dim=0)
        %if: f32[e] = cast(%i, to=f32)
        %ip: f32[e] = scale(%if, by=-4.605170185988092)
        %freq: f32[e] = exp(%ip)
        %pf: f32[b, s] = cast(%pos, to=f32)
        %ang: f32[b, s, e] = einsum(%pf, %freq, eq="b s, e -> b s e")
        %both: f32[b, s, d] = concat(%ang, %ang, dim=2)
        %cos: f32[b, s, d] = cos(%both)
        %sin: f32[b, s, d] = sin(%both)
        %q0: f32[b, s, g, r, d] = einsum(%a, %wq, eq="b s h, h g r d -> b s g r d")
        %k0: f32[b, s, g, d] = einsum(%a, %wk, eq="b s h, h g d -> b s g d")
        %v: f32[b, s, g, d] = einsum(%a, %wv, eq="b s h, h g d -> b s g d")"#;
    let attention = r#"
        %z: f32[b, g, r, s, s] = einsum(%q, %k, eq="b s g r d, b t g d -> b g r s t")
        %c: f32[b, g, r, s, s] = scale(%z, by=0.5)
        %qp: i32[b, g, r, s, s] = broadcast(%pos, eq="b s -> b g r s t")
        %kp: i32[b, g, r, s, s] = broadcast(%pos, eq="b t -> b g r s t")
        %late: i32[b, g, r, s, s] = less(%qp, %kp)
        %lf: f32[b, g, r, s, s] = cast(%late, to=f32)
        %bias: f32[b, g, r, s, s] = scale(%lf, by=-1e9)
        %ms: f32[b, g, r, s, s] = add(%c, %bias)
        %max: f32[b, g, r, s] = reduce_max(%ms, eq="b g r s t -> b g r s")
        %low: f32[b, g, r, s, s] = sub(%ms, %max, eq="b g r s t, b g r s -> b g r s t")
        %e: f32[b, g, r, s, s] = exp(%low)
        %sum: f32[b, g, r, s] = reduce_sum(%e, eq="b g r s t -> b g r s")
        %w: f32[b, g, r, s, s] = div(%e, %sum, eq="b g r s t, b g r s -> b g r s t")
        %o: f32[b, s, g, r, d] = einsum(%w, %v, eq="b g r s t, b t g d -> b s g r d")
        %p: f32[b, s, h] = einsum(%o, %wo, eq="b s g r d, g r d h -> b s h")
        %x1: f32[b, s, h] = add(%x, %p)"#;
    let net = r#"
        // The gate.
        %fg: f32[b, s, v] = einsum(%n, %gate, eq="b s h, h v -> b s v")
        %fu: f32[b, s, v] = einsum(%n, %up, eq="b s h, h v -> b s v")
        %m: f32[b, s, v] = neg(%fg)
        // Of the gate.
        %ex: f32[b, s, v] = exp(%m)
        %on: f32[b, s, v] = shift(%ex, by=1.0)
        %fs: f32[b, s, v] = div(%fg, %on)
        %fp: f32[b, s, v] = mul(%fs, %fu)
        %fd: f32[b, s, h] = einsum(%fp, %down, eq="b s v, v h -> b s h")
        %y: f32[b, s, h] = add(%x1, %fd)"#;
    let parts = [
        norm("a", "x", "norm1"),
        angles.to_string(),
        rope("q", "q0", "g, r"),
        rope("k", "k0", "g"),
        attention.to_string(),
        norm("n", "x1", "norm2"),
        net.to_string(),
    ];
    model(ARGS, &parts.concat(), "y", "f32[b, s, h]")
}

#[test]
fn a_layer_of_llama() {
    let (text, found) = recognised(layer());
    let ops: Vec<&str> = found.iter().map(|found| found.op).collect();
    assert_eq!(ops, ["rms_norm", "rope", "rope", "attention", "rms_norm", "silu"], "{text}");
    let line = |line: &&str| line.contains("= ") || line.starts_with("//");
    let names: Vec<&str> = text.lines().filter(line).map(|line| line.split([':', ',']).next().unwrap()).collect();
    let wanted = [
        "%a",
        "%q0",
        "%k0",
        "%v",
        "%q",
        "%k",
        "%0",
        "%o",
        "%p",
        "%x1",
        "%n",
        "// The gate.",
        "%fg",
        "%fu",
        "// Of the gate.",
        "%fs",
        "%fp",
        "%fd",
        "%y",
    ];
    let is_new = |name: &str| name[1..].starts_with(|first: char| first.is_ascii_digit());
    let same = |(name, wanted): (&&str, &&str)| name == wanted || is_new(name) && is_new(wanted);
    assert!(names.len() == wanted.len() && names.iter().zip(&wanted).all(same), "{text}");
}

#[test]
fn the_order_of_statements_does_not_matter() {
    let first = layer();
    let mut wanted = first.clone();
    recognise(&mut wanted.model);
    let wanted = statements(&wanted);
    let forward = |model: &Model| model.blocks.values().next().unwrap()[SectionKind::F].stmts.clone();
    let mut state = 1;
    for _ in 0..100 {
        let mut file = first.clone();
        for block in file.model.blocks.values_mut() {
            let mut stmts = shuffled(&forward(&first.model), &mut state);
            stmts.iter_mut().for_each(|stmt| stmt.comments.clear());
            block[SectionKind::F].stmts = stmts;
        }
        recognise(&mut file.model);
        let without_comments: Vec<String> = wanted.iter().filter(|line| !line.starts_with("//")).cloned().collect();
        assert_eq!(statements(&file), without_comments);
    }
}

#[test]
fn blocks_with_gradients_or_shardings_do_not_change() {
    let optimizer = ir::optimizer::Optimizer::default();
    let text = "
        dims [b=2, s=4, h=8]
        mesh @d = [dp=2]
        model @m(%x: input f32[b{dp}, h]) { call @block(%x) }
        block @block(%x: input f32[b{dp}, h]) -> metric f32[b{dp}, h] {
          %g: f32[b{dp}, h] = sigmoid(%x)
          %y: f32[b{dp}, h] = mul(%x, %g)
          return %y
        }";
    let mut sharded = ir::text::parse(text).unwrap_or_else(|error| panic!("{error:?}")).model;
    assert_eq!(recognise(&mut sharded), []);
    let text = "
        dims [b=2, h=8]
        param %w: f32[h]
        model @m(%x: input f32[b, h]) { call @block(%x; %w) }
        block @block(%x: input f32[b, h]; %w: param f32[h]) -> loss f32[] {
          %z: f32[b, h] = mul(%x, %w, eq=\"b h, h -> b h\")
          %g: f32[b, h] = sigmoid(%z)
          %y: f32[b, h] = mul(%z, %g)
          %l: f32[] = reduce_sum(%y, eq=\"b h -> ()\")
          return %l
        }";
    let plain = ir::text::parse(text).unwrap_or_else(|error| panic!("{error:?}")).model;
    let mut trained = meshwright_transforms::differentiate::differentiate(plain.clone(), &optimizer).unwrap();
    assert_eq!(recognise(&mut trained), []);
    assert_eq!(recognise(&mut plain.clone()).len(), 1);
}

#[test]
fn built_in_models_do_not_change() {
    for preset in ir::models::presets() {
        let batch = ir::models::Batch { batch: 2, seq: 16, dtype: ir::types::DType::BF16 };
        let mut model = preset.config.build(&batch).unwrap();
        let before = model.clone();
        assert_eq!(recognise(&mut model), [], "{}", preset.name);
        assert!(model == before, "{}", preset.name);
    }
}
