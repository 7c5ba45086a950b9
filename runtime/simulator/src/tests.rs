//! Tests of simulated programs against independent sums and simulations.

use super::*;
use cost::{CPU, Cluster, Link, PROGRAM};
use ir::text::parse;
use trace::{SiteKind, Stream, shares};

/// One stage, two micro-batches; the first micro-batch waits for nothing.
const TWO: &str = "\
mesh @m = [pp=2]
dims [b=8, h=16]
model @m(%x: input f32[b, h]) {
  %y = call @a(%x)
  %z = call @a(%y)
}
block @a(%x: f32[b, h]) -> f32[b, h] {
F:
  %y: f32[b, h] = silu(%x)
  return %y
}
";

fn simulate(rows: &str) -> Result<Trace, Deadlock> {
    let body = "  body @a.F(%x: f32[b, h]) -> (%y) {\n    %y: f32[b, h] = silu(%x)\n  }\n";
    let text = format!("{TWO}\nprogram @p microbatches=1 {{\n{body}{rows}}}\n");
    let file = parse(&text).unwrap_or_else(|found| panic!("{}", found.render("", &text)));
    step(&file.model, file.program.as_ref().unwrap(), &PROGRAM)
}

const FIRST: &str = "    %x:0 = feed %x microbatch=0
    %y:0 = run @a.F call=0 instance=0 microbatch=0 (%x:0)
    %t0 = start send(%y:0, peer=$pp+1, tag=0)
    wait %t0\n";

const SECOND: &str = "    %t0 = start recv(peer=$pp-1, tag=0): f32[b, h]
    %y:0 = wait %t0
    %z:0 = run @a.F call=1 instance=0 microbatch=0 (%y:0)\n";

#[test]
fn a_message_comes_when_both_have_started_and_the_bytes_are_over() {
    let trace = simulate(&format!("  class 0..1 {{\n{FIRST}  }}\n  class 1..2 {{\n{SECOND}  }}\n")).unwrap();
    let bytes = 8.0 * 16.0 * 4.0;
    let silu = 2.0 * bytes / CPU.device.memory_bandwidth;
    let message = CPU.links[0].start + CPU.links[0].latency + bytes / CPU.links[0].bandwidth;
    assert!((trace.seconds - (3.0 * silu + message)).abs() < 1e-15, "{}", trace.seconds);
    assert_eq!(trace.flows.len(), 1);
    let (from, to) = (trace.event(trace.flows[0].from), trace.event(trace.flows[0].to));
    assert_eq!((trace.site(from).name.as_str(), trace.site(to).name.as_str()), ("send %y:0", "recv %y:0"));
    assert_eq!((from.start, from.seconds), (to.start, to.seconds));
    let second = &shares(&trace)[1];
    assert!((second.exposed["pp"] - message).abs() < 1e-15, "while the bytes move, pp is what is waited for");
    assert!((second.waiting - 2.0 * silu).abs() < 1e-15, "before, the other rank is");
}

#[test]
fn who_waits_for_whom_is_told() {
    let both = SECOND.replace("$pp-1", "1-$pp");
    let deadlock = simulate(&format!("  class 0..2 {{\n{both}  }}\n")).unwrap_err();
    let told = deadlock.to_string();
    assert!(told.contains("stage 0 is at `wait recv %y:0` and waits for stage 1 to send it"), "{told}");
    assert!(told.contains("stage 1 is at `wait recv %y:0` and waits for stage 0 to send it"), "{told}");
}

#[test]
fn messages_of_a_tag_go_in_order_and_share_the_way() {
    let twice = |text: &str| text.replace("    wait %t0\n", "") + &text.replace("%t0", "%t1").replace(":0", ":1");
    let first = twice(FIRST).replace("feed %x microbatch=1", "feed %x microbatch=0") + "    wait %t0\n";
    let first = first.replace("    wait %t1\n", "") + "    wait %t1\n";
    let second = "    %t0 = start recv(peer=$pp-1, tag=0): f32[b, h]
    %t1 = start recv(peer=$pp-1, tag=0): f32[b, h]
    %y:0 = wait %t0
    %y:1 = wait %t1\n";
    let trace = simulate(&format!("  class 0..1 {{\n{first}  }}\n  class 1..2 {{\n{second}  }}\n")).unwrap();
    let sends = trace.tracks.iter().find(|track| track.stream == Stream::Sends).unwrap();
    assert_eq!(sends.events.len(), 2);
    assert!(sends.events[1].start >= sends.events[0].end(), "one way out carries one message at a time");
}

#[test]
fn a_cluster_without_distance_leaves_the_kernels() {
    let near = Cluster { links: vec![Link::plain(f64::INFINITY, 0.0)], ..CPU.clone() };
    let text = format!(
        "{TWO}\nprogram @p microbatches=1 {{\n  body @a.F(%x: f32[b, h]) -> (%y) {{\n    %y: f32[b, h] = silu(%x)\n  }}\n  \
         class 0..1 {{\n{FIRST}  }}\n  class 1..2 {{\n{SECOND}  }}\n}}\n"
    );
    let file = parse(&text).unwrap_or_else(|found| panic!("{}", found.render("", &text)));
    let trace = step(&file.model, file.program.as_ref().unwrap(), &Platform::of_program(&near)).unwrap();
    let kernels = |event: &&trace::Event| trace.site(event).kind == SiteKind::Memory;
    let all: f64 = trace.tracks.iter().flat_map(|track| track.events.iter().filter(kernels)).map(|e| e.seconds).sum();
    assert!((trace.seconds - all).abs() < 1e-15, "{} of {all}", trace.seconds);
}
