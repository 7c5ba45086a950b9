//! Published figures and orders of schedules, from the authors' own code, against those of this crate.
//!
//! `published/cases.json` has, for each source, cases of a kind: the pipeline, the costs, and what came out. Peaks count
//! forwards until their W where no memory is given. `order` is the FNV-1a of the rows as they are printed here.

use meshwright_scheduler::check::check_pipeline;
use meshwright_scheduler::costs::CostsFile;
use meshwright_scheduler::placement::Pipeline;
use meshwright_scheduler::schedules::find;
use meshwright_scheduler::simulate::simulate;
use serde::Deserialize;
use std::collections::BTreeSet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    source: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    kind: String,
    ranks: u32,
    microbatches: u32,
    chunks: u32,
    #[serde(default = "one")]
    slices: u32,
    group: Option<u32>,
    costs: CostsFile,
    makespan: f64,
    span: f64,
    #[serde(default)]
    peak: Vec<f64>,
    order: Option<String>,
}

fn one() -> u32 {
    1
}

/// Kinds that search: what they find may be better than what was published.
const SEARCHING: [&str; 2] = ["zb-auto", "v-auto"];

fn sources() -> Vec<Source> {
    serde_json::from_str(include_str!("published/cases.json")).expect("the cases are well formed")
}

#[test]
fn every_published_kind_is_there() {
    let all = sources();
    let kinds: BTreeSet<&str> = all.iter().flat_map(|source| &source.cases).map(|case| case.kind.as_str()).collect();
    let missing: Vec<&str> = kinds.into_iter().filter(|kind| find(kind).is_err()).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
}

#[test]
fn small_cases_give_the_published_figures_and_orders() {
    compare(|case| case.ranks * case.microbatches <= 8 * 24);
}

#[test]
#[ignore = "the large cases take ten seconds"]
fn all_cases_give_the_published_figures_and_orders() {
    compare(|_| true);
}

fn compare(chosen: impl Fn(&Case) -> bool) {
    let mut complaints = Vec::new();
    let mut compared = 0;
    for Source { source, cases } in sources() {
        for case in cases.iter().filter(|case| chosen(case) && find(&case.kind).is_ok()) {
            let Case { kind, ranks, microbatches, chunks, .. } = case;
            let told = |what: String| {
                format!("{source}: {kind} of {ranks} ranks x {chunks}, {microbatches} micro-batches: {what}")
            };
            complaints.extend(differences(case).into_iter().map(told));
            compared += 1;
        }
    }
    assert!(complaints.is_empty(), "\n{}\nof {compared} cases\n", complaints.join("\n"));
    assert!(compared > 0);
}

/// All that is not as it was published.
fn differences(case: &Case) -> Vec<String> {
    let kind = find(&case.kind).expect("only known kinds are compared");
    let pipeline = match kind.pipeline(case.ranks, Some(case.chunks), case.microbatches) {
        Ok(pipeline) => Pipeline { slices: case.slices, group: case.group, ..pipeline },
        Err(why) => return vec![why.to_string()],
    };
    let costs = case.costs.resolve(pipeline.stages(), case.ranks).expect("costs of a published case");
    let schedule = match kind.make(&costs, &pipeline) {
        Ok(schedule) => schedule,
        Err(why) => return vec![why.to_string()],
    };
    let time = simulate(&schedule, &costs).expect("a schedule that runs");
    let mut found: Vec<String> = check_pipeline(&schedule, &costs, &pipeline).iter().map(ToString::to_string).collect();
    if SEARCHING.contains(&kind.name) {
        if time.span > case.span * (1.0 + 1e-9) {
            found.push(format!("span {} is longer than {}", time.span, case.span));
        }
        return found;
    }
    for (name, ours, theirs) in [("makespan", time.makespan, case.makespan), ("span", time.span, case.span)] {
        if (ours - theirs).abs() > 1e-9 * theirs {
            found.push(format!("{name} {ours} is not {theirs}"));
        }
    }
    if !case.peak.is_empty() && time.peak_memory != case.peak {
        found.push(format!("peaks {:?} are not {:?}", time.peak_memory, case.peak));
    }
    let rows = schedule.rows.iter().map(|row| {
        let staged = row.iter().filter(|action| action.items().all(|item| item.stage.is_some()));
        staged.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    });
    let order = format!("{:016x}", fnv(&rows.collect::<Vec<_>>().join("\n")));
    if case.order.as_ref().is_some_and(|theirs| *theirs != order) {
        found.push("the order is another".into());
    }
    found
}

/// FNV-1a, 64 bits.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
