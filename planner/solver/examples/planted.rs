//! Solves a generated problem that is known to have an assignment within its limit.
//!
//! `planted NODES SEED SECONDS` prints the traits of the problem, and the answer.

#[path = "../tests/assign/draw.rs"]
mod draw;
#[path = "../tests/assign/planted.rs"]
mod planted;

use std::error::Error;
use std::time::{Duration, Instant};

use meshwright_solver::assign::Budget;
use planted::Planted;

/// The most choices of a node.
const CHOICES: u64 = 24;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, seed, seconds] = &arguments[..] else { return Err("usage: planted NODES SEED SECONDS".into()) };
    let planted = Planted::new(nodes.parse()?, CHOICES, seed.parse()?);
    let pairs = || planted.pairs.iter().flat_map(|(_, _, table)| table);
    println!("nodes      {nodes}");
    println!("edges      {}", planted.pairs.len());
    println!("pairs      {}, forbidden {}", pairs().count(), pairs().filter(|cost| cost.is_infinite()).count());
    let problem = planted.problem();
    let least = |amounts: &Vec<u64>| (0..amounts.len()).min_by_key(|&choice| amounts[choice]).unwrap_or(0);
    let least: Vec<usize> = planted.loads.iter().map(|(_, amounts)| least(amounts)).collect();
    println!("limit      {:.3} of what the least choices use", planted.limit as f64 / problem.peak(&least) as f64);
    println!("planted    {}", problem.cost(&planted.choice));
    let start = Instant::now();
    let time = Some(Duration::try_from_secs_f64(seconds.parse()?)?);
    let threads = std::thread::available_parallelism()?.get();
    let answer = problem.solve(&Budget { work: None, time, threads, ..Budget::default() });
    if !answer.choice.is_empty() && !problem.allows(&answer.choice) {
        return Err("an answer that is not allowed".into());
    }
    println!("answer     {}, {:?}", answer.cost, answer.status);
    println!("bound      {}, gap {:.2} %", answer.bound, 100.0 * answer.gap());
    println!("seconds    {:.1}", start.elapsed().as_secs_f64());
    Ok(())
}
