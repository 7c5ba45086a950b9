//! Groups of small bodies. An elementwise statement on the cluster `cpu` takes 0.2 ms for two tensors, a product 8 ms.

use super::*;
use cost::{PROGRAM, Scope};
use ir::graph::SectionKind;
use ir::program::{BodyArg, BodyKind, Source};

const HEAD: &str = "mesh @m = [tp=2]\ndims [n=1024]\n";

/// The body of a block's forward, as code generation makes it.
fn body(text: &str) -> (Model, Body) {
    let model = ir::text::parse(&format!("{HEAD}{text}")).expect("the block parses").model;
    let block = model.blocks.values().next().expect("a block");
    let target = Target { platform: &PROGRAM, scope: Scope::of(&model, &block.values) };
    let section = &block[SectionKind::F];
    let units: Vec<Unit> = section.stmts.iter().cloned().map(Unit::Stmt).collect();
    let args: Vec<Value> = block.args.iter().map(|arg| arg.value).collect();
    let own = |value: Value| !args.contains(&value) && !section.ret.contains(&value);
    let body = Body {
        name: "l.F".to_string(),
        block: None,
        kind: BodyKind::F,
        values: block.values.clone(),
        args: args.iter().map(|&value| BodyArg { value, source: Source::Row }).collect(),
        instrs: instructions(target, &units, own),
        results: section.ret.clone(),
        keeps: Vec::new(),
        frame: None,
    };
    (model, body)
}

/// The first results of a body's kernels after fusion, groups in brackets with what they leave: `[a b -> b] c`.
fn order(text: &str) -> String {
    let (model, mut body) = body(text);
    if let Some(instrs) = grouped(&PROGRAM, &model, &body) {
        body.instrs = instrs;
    }
    let name = |value: &Value| body.values[*value].name.clone();
    let names =
        |values: &mut dyn Iterator<Item = Value>| values.map(|value| name(&value)).collect::<Vec<_>>().join(" ");
    let show = |instr: &BodyInstr| match instr {
        BodyInstr::Compute(stmt) => Some(name(&stmt.results[0])),
        BodyInstr::Fused(fused) => {
            let stmts = names(&mut fused.stmts.iter().map(|stmt| stmt.results[0]));
            Some(format!("[{stmts} -> {}]", names(&mut fused.outs.iter().copied())))
        }
        BodyInstr::Start { operands, .. } => Some(format!(">{}", name(&operands[0]))),
        BodyInstr::Wait { results, .. } => Some(format!("<{}", name(&results[0]))),
        BodyInstr::Free(_) => None,
    };
    body.instrs.iter().filter_map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_group_reaches_over_what_it_does_not_need() {
    let text = r#"
block @l(%x: f32[n, n]) -> f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %b: f32[n, n] = permute(%x, eq="m n -> n m")
  %c: f32[n, n] = square(%a)
  %d: f32[n, n] = add(%c, %b)
  return %d
}"#;
    // All three are one group after the permutation.
    assert_eq!(order(text), "b [a c d -> d]");
}

#[test]
fn nothing_comes_between_the_statements_of_a_group() {
    let text = r#"
block @l(%x: f32[n, n]) -> f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %b: f32[n, n] = permute(%a, eq="m n -> n m")
  %c: f32[n, n] = mul(%a, %b)
  return %c
}"#;
    assert_eq!(order(text), "a b c");
}

#[test]
fn a_product_begins_a_group_of_what_follows() {
    let text = r#"
block @l(%x: f32[n, n]) -> f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %b: f32[n, n] = einsum(%a, %x, eq="m k, k n -> m n")
  %c: f32[n, n] = mul(%a, %b)
  return %c
}"#;
    // The product reads all of `a`, which is therefore apart.
    assert_eq!(order(text), "a [b c -> c]");
}

#[test]
fn sums_over_the_rows_of_a_product_are_in_its_group() {
    let text = r#"
block @l(%x: f32[n, n], %y: f32[n, n]) -> f32[n], f32[n] {
  %p: f32[n, n] = einsum(%x, %y, eq="m k, k n -> m n")
  %a: f32[n, n] = mul(%p, %y)
  %s: f32[n] = reduce_sum(%a, eq="m n -> n")
  %t: f32[n] = square(%s)
  %u: f32[n] = reduce_sum(%p, eq="m n -> m")
  return %t, %u
}"#;
    // The sum is complete after the last row, and `u` is not a sum over rows.
    assert_eq!(order(text), "[p a s -> p s] t u");
}

#[test]
fn groups_do_not_need_each_other() {
    let text = r#"
block @l(%x: f32[n, n], %y: f32[n, n]) -> f32[n, n], f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %p: f32[n, n] = permute(%a, eq="m n -> n m")
  %c: f32[n, n] = silu(%y)
  %q: f32[n, n] = permute(%c, eq="m n -> n m")
  %d: f32[n, n] = mul(%y, %p)
  %b: f32[n, n] = mul(%x, %q)
  return %d, %b
}"#;
    // `a` and `b` read x, `c` and `d` read y. Each pair alone could be a group.
    assert_eq!(order(text), "a p [c d -> c d] q b");
}

#[test]
fn other_rows_are_another_group() {
    let text = r#"
block @l(%x: f32[n, n], %g: f32[n]) -> f32[n, n], f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %n: f32[n, n], %r: f32[n] = rms_norm(%a, %g, eps=1e-5)
  %h: f32[n] = square(%g)
  %c: f32[n, n], %s: f32[n] = rms_norm(%n, %h, eps=1e-5)
  return %n, %c
}"#;
    assert_eq!(order(text), "h [a n c -> n c]");
}

#[test]
fn a_transfer_does_not_wait_for_what_it_does_not_need() {
    let text = r#"
block @l(%x: f32[n, n]+{tp}, %y: f32[n, n]) -> f32[n, n], f32[n, n] {
  %a: f32[n, n]+{tp} = scale(%x, by=2.0)
  %b: f32[n, n] = all_reduce(%a, over={tp})
  %c: f32[n, n] = silu(%y)
  %d: f32[n, n] = tanh(%c)
  %e: f32[n, n] = square(%d)
  return %b, %e
}"#;
    assert_eq!(order(text), "a >a [c d e -> e] <b");
}
