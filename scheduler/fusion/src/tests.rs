//! The groups of small blocks against all others. An elementwise statement on the cluster `cpu` takes 0.2 ms for two tensors, a product
//! 8 ms.

use super::*;
use cost::{PROGRAM, Scope};
use ir::graph::{Model, Section, SectionKind};

const HEAD: &str = "mesh @m = [tp=2]\ndims [n=1024]\n";

/// All ways to divide statements into groups.
fn partitions(count: usize) -> Vec<Vec<Vec<usize>>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let with_last = |groups: Vec<Vec<usize>>| {
        (0..=groups.len()).map(move |place| {
            let mut groups = groups.clone();
            match groups.get_mut(place) {
                Some(group) => group.push(last),
                None => groups.push(vec![last]),
            }
            groups
        })
    };
    partitions(last).into_iter().flat_map(with_last).collect()
}

/// The model of a block.
fn parsed(text: &str) -> Model {
    ir::text::parse(&format!("{HEAD}{text}")).expect("the block parses").model
}

/// The forward of a model's one block on the cluster `cpu`, and the values that exist before or after it.
fn parts(model: &Model) -> (Target<'_>, HashSet<Value>, &Section) {
    let block = model.blocks.values().next().expect("a block");
    let section = &block[SectionKind::F];
    let given = block.args.iter().map(|arg| arg.value).chain(section.ret.iter().copied()).collect();
    (Target { platform: &PROGRAM, scope: Scope::of(model, &block.values) }, given, section)
}

#[test]
fn no_other_groups_take_less_time() {
    let text = r#"
block @l(%x: f32[n, n], %y: f32[n, n], %g: f32[n]) -> f32[n, n], f32[n, n], f32[n, n] {
  %a: f32[n, n] = silu(%x)
  %b: f32[n, n] = mul(%a, %y)
  %p: f32[n, n] = einsum(%b, %y, eq="m k, k n -> m n")
  %c: f32[n, n] = add(%p, %x)
  %n: f32[n, n], %r: f32[n] = rms_norm(%c, %g, eps=1e-5)
  %d: f32[n, n] = mul(%a, %a)
  %e: f32[n, n] = sub(%d, %y)
  %q: f32[n, n] = einsum(%e, %y, eq="m k, k n -> m n")
  %f: f32[n, n] = mul(%q, %n)
  return %c, %e, %f
}"#;
    let model = parsed(text);
    let (target, given, section) = parts(&model);
    let (stmts, graph) = (&section.stmts, Graph::new(target, given, &section.stmts));
    let seconds = |groups: &[Vec<usize>]| groups.iter().map(|group| graph.seconds(group)).sum::<f64>();
    let is_closed = |group: &Vec<usize>| group.len() == 1 || graph.closed(group, group[0]).as_ref() == Some(group);
    let legal = partitions(stmts.len()).into_iter().filter(|groups| groups.iter().all(is_closed));
    let acyclic = legal.filter(|groups| choose::ordered(&graph, &groups.iter().collect::<Vec<_>>()).is_ok());
    let least = acyclic.map(|groups| seconds(&groups)).fold(f64::INFINITY, f64::min);
    let chosen = choose::choose(&graph, &candidates::candidates(&graph));
    assert!(chosen.len() < stmts.len() && (seconds(&chosen) / least - 1.0).abs() < 1e-9, "{chosen:?}");
}

#[test]
fn neighbours_have_reasons() {
    let text = r#"
block @l(%x: f32[n, n]+{tp}, %y: f32[n, n], %g: f32[n]) -> f32[n, n], f32[n] {
  %a: f32[n, n] = silu(%y)
  %p: f32[n, n] = einsum(%a, %y, eq="m k, k n -> m n")
  %c: f32[n, n] = add(%p, %y)
  %n: f32[n, n], %r: f32[n] = rms_norm(%c, %g, eps=1e-5)
  %t: f32[n, n] = permute(%n, eq="m n -> n m")
  %d: f32[n, n] = mul(%n, %t)
  %s: f32[n, n] = all_reduce(%x, over={tp})
  %e: f32[n, n] = add(%d, %s)
  %h: f32[n] = reduce_sum(%n, eq="m n -> m")
  return %e, %h
}"#;
    let model = parsed(text);
    let (target, given, section) = parts(&model);
    let units = units(target, given.clone(), &section.stmts);
    let name = |at: usize| units[at].stmts()[0].op.name();
    let found: Vec<String> = neighbours(target, given, &units)
        .iter()
        .map(|pair| format!("{} {}: {}", name(pair.units[0]), name(pair.units[1]), pair.reason))
        .collect();
    assert_eq!(
        found,
        [
            "silu einsum: `einsum` reads all rows at once",
            "einsum rms_norm: `rms_norm` does not work on single elements of the product",
            "rms_norm permute: `permute` does not go row by row",
            "rms_norm mul: `permute` is between",
            "permute mul: `permute` does not go row by row",
            "mul add: together they save no time",
            "rms_norm reduce_sum: `reduce_sum` does not go row by row",
        ]
    );
}

/// A bias of the columns of a product repeats with each row. A number for each head is that of several columns.
#[test]
fn a_number_of_some_columns_does_not_follow_a_product() {
    for (bias, equation, groups) in [("f32[32, 32]", "m h d, h d -> m h d", 1), ("f32[32]", "m h d, h -> m h d", 2)] {
        let text = format!(
            r#"
block @l(%x: f32[n, n], %w: f32[n, 32, 32], %r: {bias}) -> f32[n, 32, 32] {{
  %p: f32[n, 32, 32] = einsum(%x, %w, eq="m k, k h d -> m h d")
  %d: f32[n, 32, 32] = mul(%p, %r, eq="{equation}")
  return %d
}}"#
        );
        let model = parsed(&text);
        let (target, given, section) = parts(&model);
        assert_eq!(units(target, given, &section.stmts).len(), groups, "{equation}");
    }
}

/// An update that leaves new values beside the old ones would write rows that are still read.
#[test]
fn an_update_is_in_a_group_if_it_is_in_place() {
    let text = r#"
block @l(%w: f32[n, n], %g: f32[n, n], %m: f32[n, n], %v: f32[n, n], %c: f32[], %l: f32[], %t: f32[])
    -> f32[n, n], f32[n, n], f32[n, n], bf16[n, n] {
  %a: f32[n, n], %b: f32[n, n], %d: f32[n, n] =
    adamw(%w, %g, %m, %v, %c, %l, %t, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)
  %h: bf16[n, n] = cast(%a, to=bf16)
  return %a, %b, %d, %h
}"#;
    let model = parsed(text);
    let (target, given, section) = parts(&model);
    let mut stmts = section.stmts.clone();
    assert_eq!(units(target, given.clone(), &stmts).len(), 2);
    let operands = stmts[0].operands.clone();
    stmts[0].results = [0, 2, 3].map(|at| operands[at]).to_vec();
    stmts[1].operands = vec![operands[0]];
    let groups = units(target, given, &stmts);
    let [Unit::Group(fused)] = &groups[..] else { panic!("one group, not {groups:?}") };
    assert_eq!(fused.outs, [stmts[0].results.clone(), stmts[1].results.clone()].concat());
}
