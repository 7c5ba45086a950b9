//! Activations that the backward computes again whatever the configuration says.

use ir::graph::SectionKind;
use ir::text::parse;
use meshwright_transforms::differentiate::gradients;
use meshwright_transforms::recompute::{recompute, remade};

/// The names of such values, for a block that computes `%y` from `%x` and two matrices, and the statements of its backward then.
fn remade_of(body: &str) -> (Vec<String>, Vec<String>) {
    let text = format!(
        "dims [b=2, h=4, f=6]
         param %gate: f32[h, f]
         param %up: f32[h, f]
         model @m(%x: input f32[b, h]) {{ call @block(%x; %gate, %up) }}
         block @block(%x: input f32[b, h]; %gate: param f32[h, f], %up: param f32[h, f]) -> loss f32[] {{
           {body}
           %l: f32[] = reduce_sum(%y, eq=\"b h -> ()\")
           return %l
         }}"
    );
    let file = parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    let mut model = gradients(file.model).unwrap();
    let block = model.blocks.values_mut().next().unwrap();
    let found = remade(block);
    let names = found.iter().map(|&at| block.value_name(block[SectionKind::F].stmts[at].results[0]).to_string());
    let names = names.collect();
    recompute(block, &found);
    assert!(remade(block).is_empty(), "once is enough");
    let backward = [SectionKind::I, SectionKind::W].into_iter().flat_map(|kind| &block[kind].stmts);
    (names, backward.map(|stmt| stmt.op.name().to_string()).collect())
}

const FORWARD: &str = "%g: f32[b, f] = einsum(%x, %gate, eq=\"b h, h f -> b f\")
    %u: f32[b, f] = einsum(%x, %up, eq=\"b h, h f -> b f\")
    %c: f32[b, f] = silu(%g)";
const DOWN: &str = "eq=\"b f, h f -> b h\")";

#[test]
fn the_activation_of_a_gate_is_computed_again() {
    let gated = format!("{FORWARD}\n%p: f32[b, f] = mul(%c, %u)\n%y: f32[b, h] = einsum(%p, %up, {DOWN}");
    let (names, backward) = remade_of(&gated);
    assert_eq!(names, ["c"]);
    assert_eq!(backward.iter().filter(|op| *op == "silu").count(), 1, "{backward:?}");
}

#[test]
fn a_chain_of_functions_is_computed_again() {
    // An expert of gpt-oss has a gate with a limit, times its own sigmoid. The limits' gradients read %g and %u, and the last product
    // reads %p.
    let clamped = format!(
        "{}
         %l0: f32[b, f] = at_most(%g, max=7.0)
         %s: f32[b, f] = scale(%l0, by=1.702)
         %v: f32[b, f] = sigmoid(%s)
         %a: f32[b, f] = mul(%l0, %v)
         %m: f32[b, f] = at_most(%u, max=7.0)
         %o: f32[b, f] = shift(%m, by=1.0)
         %p: f32[b, f] = mul(%o, %a)
         %y: f32[b, h] = einsum(%p, %up, {DOWN}",
        FORWARD.replace("%c: f32[b, f] = silu(%g)", "")
    );
    let (names, backward) = remade_of(&clamped);
    assert_eq!(names, ["l0", "s", "v", "a", "m", "o"]);
    assert_eq!(backward.iter().filter(|op| *op == "sigmoid").count(), 1, "{backward:?}");
}

#[test]
fn what_a_product_reads_is_saved() {
    let plain = format!("{FORWARD}\n%y: f32[b, h] = einsum(%c, %up, {DOWN}");
    let (names, backward) = remade_of(&plain);
    assert!(names.is_empty() && !backward.contains(&"silu".to_string()), "{names:?} {backward:?}");
}

#[test]
fn what_is_computed_from_a_value_that_nothing_else_reads_is_saved() {
    // The gradient of `sigmoid` reads its result, so that nothing in the backward reads `%g`.
    let gated = format!("{FORWARD}\n%p: f32[b, f] = mul(%c, %u)\n%y: f32[b, h] = einsum(%p, %up, {DOWN}");
    let (names, _) = remade_of(&gated.replace("silu", "sigmoid"));
    assert!(names.is_empty(), "{names:?}");
}
