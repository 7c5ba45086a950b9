//! Statement orders of small blocks. A product of two matrices takes 8 ms on the cluster `cpu`, a sum over two ranks of one
//! matrix 0.4 ms.

use super::*;
use cost::{PROGRAM, Scope};
use ir::graph::SectionKind;

const HEAD: &str = "mesh @m = [dp=2, tp=2]\ndims [n=1024]\n";

/// The order of a section's statements, `>` for a start and `<` for a wait: `>%a %c <%a %b`.
fn order(text: &str, section: SectionKind) -> String {
    let model = ir::text::parse(&format!("{HEAD}{text}")).expect("the block parses").model;
    let block = model.blocks.values().next().expect("a block");
    let units: Vec<Unit> = block[section].stmts.iter().cloned().map(Unit::Stmt).collect();
    let name = |at: usize| block.value_name(units[at].leaves()[0]);
    let show = |step: &OverlapStep| match *step {
        OverlapStep::Compute(at) => name(at).to_string(),
        OverlapStep::Start(at) => format!(">{}", name(at)),
        OverlapStep::Wait(at) => format!("<{}", name(at)),
    };
    let steps = overlap(Target { platform: &PROGRAM, scope: Scope::of(&model, &block.values) }, &units);
    steps.iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_does_not_need_a_sum_is_computed_while_it_goes_on() {
    let text = r#"
block @l(%x: f32[n, n]+{tp}, %y: f32[n, n]) -> f32[n, n] {
  %a: f32[n, n] = all_reduce(%x, over={tp})
  %b: f32[n, n] = silu(%a)
  %c: f32[n, n] = einsum(%y, %y, eq="m k, k n -> m n")
  %d: f32[n, n] = einsum(%y, %c, eq="m k, k n -> m n")
  %e: f32[n, n] = add(%b, %d)
  return %e
}"#;
    // One product hides the sum; then the text's order again.
    assert_eq!(order(text, SectionKind::F), ">a c <a b d e");
}

#[test]
fn without_layout_changes_the_order_is_that_of_the_text() {
    let text = r#"
block @l(%x: f32[n, n]) -> f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %b: f32[n, n] = einsum(%x, %x, eq="m k, k n -> m n")
  %c: f32[n, n] = add(%a, %b)
  return %c
}"#;
    assert_eq!(order(text, SectionKind::F), "a b c");
}

#[test]
fn what_a_sum_waits_for_goes_first() {
    let text = r#"
block @l(%x: f32[n, n], %w: f32[n{tp}, n], %y: f32[n, n{tp}]) -> f32[n, n] {
  %a: f32[n, n]       = einsum(%x, %x, eq="m k, k n -> m n")
  %b: f32[n, n]+{tp}  = einsum(%y, %w, eq="m k, k n -> m n")
  %c: f32[n, n]       = all_reduce(%b, over={tp})
  return %c
}"#;
    assert_eq!(order(text, SectionKind::F), "b >c a <c");
}

#[test]
fn groups_meet_in_the_order_of_the_text() {
    let text = r#"
block @l(%x: f32[n, n]+{tp}, %y: f32[n, n]+{dp}, %u: f32[n, n{tp}], %w: f32[n{tp}, n]) -> f32[n, n] {
  %a: f32[n, n]+{tp} = einsum(%u, %w, eq="m k, k n -> m n")
  %b: f32[n, n]      = all_reduce(%a, over={tp})
  %c: f32[n, n]      = all_reduce(%x, over={tp})
  %d: f32[n, n]      = all_reduce(%y, over={dp})
  return %b
}"#;
    // Nothing holds `c` back but `b`, which is over the same axes.
    assert_eq!(order(text, SectionKind::F), ">d a >b >c <b <c <d");
}

#[test]
fn what_is_stored_is_not_read_too_late_or_too_early() {
    let text = r#"
block @l(%x: f32[n, n]; %w: param f32[n, n], %lr: const f32[]) -> f32[n, n] {
F:
  return %x
I(%x.d: f32[n, n]):
  return %x.d
W:
U:
  %s: f32[n, n]/{dp} = all_slice(%w, over={dp})
  %o: f32[n, n]      = silu(%w)
  %n: f32[n, n]/{dp} = scale(%s, by=2.0)
  %w: f32[n, n]      = all_gather(%n, over={dp})
  %p: f32[n, n]      = silu(%w)
  return
}"#;
    // `o` reads the old parameter, so that the gather waits for it; `p` reads the new one. `shard` moves nothing.
    assert_eq!(order(text, SectionKind::U), ">s <s o n >w <w p");
}
