//! A program with places, and what is found when one of them is wrong.

use crate::text::parse;
use crate::verify::program::check_places;

/// f32[b, h] takes 128 bytes, `%w` 256. The second run reads what the first gives, and keeps it.
const RIGHT: &str = r#"
dims [b=4, h=8]
param %w: f32[h, h]
model @m(%x: input f32[b, h]) {
  %y = call @lin(%x; %w)
}
block @lin(%x: f32[b, h]; %w: param f32[h, h]) -> f32[b, h] {
  %1: f32[b, h] = einsum(%x, %w, eq="b h, h f -> b f")
  %2: f32[b, h] = silu(%1)
  %3: f32[b, h] = neg(%2)
  %y: f32[b, h] = add(%3, %x)
  return %y
}
program @train microbatches=2 {
  body @lin.F(%x: f32[b, h]; %w: param f32[h, h]) -> (%y) save (%x, %1) {
    %1: f32[b, h] = einsum(%x, %w, eq="b h, h f -> b f")
    %2: f32[b, h] = silu(%1)
    %3: f32[b, h] = neg(%2)
    free %2
    %y: f32[b, h] = add(%3, %x)
    free %3
    frame slot 128 scratch 128 %1 slot+0, %2 scratch+0, %3 = %2, %y row
  }
  class 0..1 {
    params %w
    memory 1408 %w 0
    %x:0 = feed %x microbatch=0 at 256
    %y:0 = run @lin.F call=0 instance=0 microbatch=0 (%x:0) save %lin.F:0 at 384, 512, 640
    %y:1 = run @lin.F call=0 instance=0 microbatch=1 (%y:0) save %lin.F:1 at 768, 896, 640
    %y:0 += %y:1 at 640
    free %x:0, %lin.F:0
    %x:1 = feed %x microbatch=1 at 256
    %t0, %y:2 = start run @lin.F call=0 instance=0 microbatch=1 (%x:1) save %lin.F:2 at 1024, 1152, 1280
    %t1 = start sum(%y:0, ranks=[0]) at 640
    wait %t1
    wait %t0
    free %y:0, %y:1, %y:2, %lin.F:1, %lin.F:2, %x:1
  }
}
"#;

fn found(text: &str) -> Vec<String> {
    let file = parse(text).unwrap_or_else(|why| panic!("{}", why.render("program", text)));
    let found = check_places(&file.model, file.program.as_ref().expect("a program"), None);
    found.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The expected violation, a text of the program, and its replacement.
const BROKEN: &[(&str, &str, &str)] = &[
    ("arena", "memory 1408", "memory 1344"),
    ("arena", "microbatch=0 at 256", "microbatch=0 at 260"),
    ("arena", "at 384, 512, 640", "at 384, 512"),
    ("arena", "microbatch=0 at 256", "microbatch=0 at 256, 320"),
    ("arena", "%2 scratch+0, ", ""),
    ("arena", "frame slot 128", "frame slot 64"),
    ("arena", "%y row", "%y scratch+0"),
    ("arena", "%1 slot+0", "%1 scratch+0"),
    ("arena", "%3 = %2", "%3 = %3"),
    ("arena", "    frame slot 128 scratch 128 %1 slot+0, %2 scratch+0, %3 = %2, %y row\n", ""),
    ("residents", " %w 0\n", "\n"),
    ("residents", " %w 0\n", " %w 0, %w 1408\n"),
    // On a parameter.
    ("overlap", "microbatch=0 at 256", "microbatch=0 at 192"),
    // A slot on the scratch of its own run.
    ("overlap", "at 384, 512, 640", "at 384, 512, 576"),
    // Its own results and slot on each other.
    ("overlap", "at 384, 512, 640", "at 512, 512, 640"),
    // On a bundle that is still to be read.
    ("overlap", "at 768, 896, 640", "at 512, 896, 640"),
    ("overlap", "at 768, 896, 640", "at 768, 896, 512"),
    // The second bundle holds what is added to.
    ("overlap", "+= %y:1 at 640", "+= %y:1 at 384"),
    // Two values that are there at once.
    ("overlap", "%3 = %2", "%3 slot+0"),
    // On a saved value.
    ("overlap", "%2 scratch+0, %3 = %2", "%2 = %1, %3 = %1"),
    // On an argument.
    ("overlap", "%3 = %2", "%3 = %x"),
    // An async run still has its scratch.
    ("overlap", "ranks=[0]) at 640", "ranks=[0]) at 1280"),
    // On what the second bundle still holds.
    ("overlap", "ranks=[0]) at 640", "ranks=[0]) at 384"),
];

#[test]
fn right_places_are_right() {
    assert_eq!(found(RIGHT), [""; 0]);
}

#[test]
fn each_wrong_place_is_found_by_its_name() {
    for (name, from, to) in BROKEN {
        assert_eq!(RIGHT.matches(from).count(), 1, "{from}");
        let found = found(&RIGHT.replace(from, to));
        assert!(found.iter().any(|violation| violation.starts_with(name)), "{name}, {from} -> {to}: {found:?}");
    }
}

#[test]
fn a_started_run_is_laid_out_as_a_whole() {
    // All of it at one place: results, slot and scratch on each other.
    let found = found(&RIGHT.replace("at 1024, 1152, 1280", "at 1024, 1024, 1024"));
    assert!(found.iter().any(|violation| violation.starts_with("overlap")), "{found:?}");
}

#[test]
fn what_dies_may_be_written_on_where_the_op_allows_it() {
    // `neg` may be on its operand, `einsum` may not.
    let text = RIGHT.replace("%3: f32[b, h] = neg(%2)", r#"%3: f32[b, h] = einsum(%2, %w, eq="b h, h f -> b f")"#);
    let found = found(&text);
    assert!(found.iter().any(|violation| violation.contains("which `einsum` still reads")), "{found:?}");
}
