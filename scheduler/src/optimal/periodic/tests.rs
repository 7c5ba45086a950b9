use super::*;
use crate::check::check;
use crate::costs::StageCosts;
use crate::optimal::{Budget, Instance};
use crate::placement::{Pipeline, Placement};
use crate::problem::{Backward, Objective, Problem};

fn run(costs: &StageCosts, pipeline: &Pipeline, objective: Objective, work: u64) -> Found {
    let problem = Problem { costs, pipeline, objective, backward: Backward::Split, deadline: None };
    let instance = Instance::new(&problem);
    let bound = crate::optimal::bound::of(&problem, &instance, 1e9);
    let log = |line: &str| eprintln!("{line}");
    let budget = Budget { work, deadline: None };
    Periodic.search(&Task {
        problem: &problem,
        instance: &instance,
        best: None,
        bound,
        tolerance: 1e-9,
        budget,
        log: &log,
    })
}

#[test]
#[ignore]
fn probe() {
    let env = |k: &str, d: f64| std::env::var(k).ok().and_then(|s| s.parse().ok()).unwrap_or(d);
    let (p, m, k) = (env("P", 32.0) as u32, env("M", 256.0) as u32, env("K", 2.0));
    let placement = Placement::ALL[env("PL", 0.0) as usize];
    let pipeline = Pipeline::new(placement, p, m);
    let mut costs =
        StageCosts::uniform(pipeline.stages(), env("F", 10.402), env("I", 10.248), env("W", 7.698), env("C", 0.460));
    let mem_w = env("MW", 196608.0 / 454656.0);
    costs.mem_w.fill(mem_w);
    costs.mem_i.fill(1.0 - mem_w);
    costs.limit = Some(vec![k; p as usize]);
    let t = std::time::Instant::now();
    let found = run(
        &costs,
        &pipeline,
        if env("SPAN", 1.0) > 0.0 { Objective::Span } else { Objective::Makespan },
        env("WORK", 1e6) as u64,
    );
    let best = found.better.unwrap();
    assert!(check(&best.schedule, &costs, m, |s, mb| pipeline.rank(s, mb)).is_empty());
    let work = f64::from(m) * (costs.f[0] + costs.i[0] + costs.w[0]) * f64::from(pipeline.chunks);
    eprintln!(
        "value {} rate {:.5} bound {} gap {:.4}% time {:?}",
        best.value,
        1.0 - work / best.value,
        found.bound,
        (best.value / found.bound - 1.0) * 100.0,
        t.elapsed()
    );
}
