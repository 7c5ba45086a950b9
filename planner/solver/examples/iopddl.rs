//! Answers an instance of the ASPLOS 2025 contest on intra-operator parallelism (github.com/google/iopddl).
//!
//! `iopddl FILE.json[.gz] SECONDS` prints the choice of each node as its last line, within the seconds.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use meshwright_solver::assign::{Assignment, Budget};
use serde::Deserialize;

/// The file's form.
#[derive(Deserialize)]
struct Instance {
    problem: Problem,
}

#[derive(Deserialize)]
struct Problem {
    nodes: Nodes,
    edges: Edges,
    usage_limit: Option<u64>,
}

#[derive(Deserialize)]
struct Nodes {
    intervals: Vec<(u32, u32)>,
    costs: Vec<Vec<f64>>,
    usages: Vec<Vec<u64>>,
}

#[derive(Deserialize)]
struct Edges {
    nodes: Vec<(usize, usize)>,
    costs: Vec<Vec<f64>>,
}

/// The contest's mark of what is forbidden.
const FORBIDDEN: f64 = 1e18;

/// Share of the time, and seconds, that are left for starting and ending.
const RESERVE: (f64, f64) = (0.03, 0.2);

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, seconds] = &arguments[..] else {
        return Err("usage: iopddl FILE.json[.gz] SECONDS".into());
    };
    let seconds: f64 = seconds.parse()?;
    let deadline = Duration::try_from_secs_f64((seconds * (1.0 - RESERVE.0) - RESERVE.1).max(0.0))?;
    let problem = assignment(read(path)?)?;
    eprintln!("{path}: {} nodes, read in {:.2} s", problem.nodes(), start.elapsed().as_secs_f64());
    let threads = std::thread::available_parallelism()?.get();
    let time = Some(deadline.saturating_sub(start.elapsed()));
    let answer = problem.solve(&Budget { work: None, time, threads, ..Budget::default() });
    let (cost, bound) = (answer.cost, answer.bound);
    eprintln!("{:?}: cost {cost}, bound {bound}, gap {:.3} %", answer.status, 100.0 * answer.gap());
    eprintln!("{:.2} s", start.elapsed().as_secs_f64());
    println!("{}", serde_json::to_string(&answer.choice)?);
    Ok(())
}

fn read(path: &str) -> Result<Instance, Box<dyn Error>> {
    let mut text = Vec::new();
    let file = BufReader::new(File::open(path)?);
    if path.ends_with(".gz") {
        GzDecoder::new(file).read_to_end(&mut text)?;
    } else {
        { file }.read_to_end(&mut text)?;
    }
    Ok(serde_json::from_slice(&text)?)
}

fn assignment(Instance { problem }: Instance) -> Result<Assignment, Box<dyn Error>> {
    let allowed = |costs: Vec<f64>| -> Vec<f64> {
        costs.into_iter().map(|cost| if cost < FORBIDDEN { cost } else { f64::INFINITY }).collect()
    };
    let mut assignment = Assignment::new();
    let nodes: Vec<_> = problem.nodes.costs.into_iter().map(|costs| assignment.node(allowed(costs))).collect();
    for ((&node, (lo, hi)), usages) in nodes.iter().zip(problem.nodes.intervals).zip(problem.nodes.usages) {
        assignment.load(node, lo..hi, usages);
    }
    for ((a, b), costs) in problem.edges.nodes.into_iter().zip(problem.edges.costs) {
        let (Some(&a), Some(&b)) = (nodes.get(a), nodes.get(b)) else {
            return Err(format!("an edge joins nodes {a} and {b}, and there are {}", nodes.len()).into());
        };
        assignment.edge(a, b, allowed(costs));
    }
    if let Some(limit) = problem.usage_limit {
        assignment.limit(limit);
    }
    Ok(assignment)
}
