//! Large-neighbourhood search (Shaw 1998): most nodes retain their choices, and the same branch and bound solves the
//! rest again. Neighbourhoods grow after a complete solve and shrink otherwise.

use std::thread;
use std::time::Duration;

use super::branch::Branch;
use super::clock::Clock;
use super::net::Net;
use super::polish::polish;
use super::random::Random;
use super::shared::{Best, Shared};

/// Interval between checks for an incumbent.
const PAUSE: Duration = Duration::from_millis(1);

/// The most steps that a part is worth; the least; and for how many parts there should be enough in between.
const EFFORT: u64 = 8_000_000;
const LEAST: u64 = 300_000;
const PARTS: u64 = 200;

/// Rounds of ascent at a part's first node, and at the others.
const ROUNDS: [usize; 2] = [60, 12];

/// Nodes of the first part.
const FIRST: f64 = 15.0;

/// How many nodes more, relatively, after a part that was solved, and less after one that was not.
const MORE: f64 = 1.03;
const LESS: f64 = 0.93;

/// Improves the incumbent of `core`, once there is one, until the clock stops. `above` has the choices' reduced costs.
pub(crate) fn improve(core: &Net, above: &[Vec<f64>], shared: &Shared, clock: &mut Clock, margin: f64, seed: u64) {
    let mut random = Random::new(seed);
    let nodes: Vec<usize> = core.nodes().collect();
    let effort = clock.left().map_or(EFFORT, |left| (left / PARTS).clamp(LEAST, EFFORT));
    let copy = core.entries() as u64 / 8;
    let mut size = FIRST;
    let mut best = Best::none();
    while !clock.over() && !shared.finished() {
        if shared.cost() < best.cost {
            best = shared.best();
            polish(core, &mut best, clock);
            shared.offer(best.cost, || best.choice.clone());
        }
        if best.choice.is_empty() {
            thread::sleep(PAUSE);
            continue;
        }
        let free = part(core, &nodes, above, &best.choice, size as usize, &mut random);
        let mut inner = clock.part(effort);
        let found = Shared::new(Best { choice: Vec::new(), cost: best.cost });
        Branch { clock: &mut inner, shared: &found, margin, ceiling: f64::INFINITY, rounds: ROUNDS, held: 0 }.search(
            core.part(&best.choice, &free),
            f64::NEG_INFINITY,
            true,
        );
        size = (size * if inner.over() { LESS } else { MORE }).clamp(1.0, nodes.len().max(1) as f64);
        clock.spend(inner.done() + copy);
        let found = found.best();
        if found.cost < best.cost - margin * best.cost.abs() {
            shared.offer(found.cost, || found.choice.clone());
            best = found;
        }
    }
}

/// Marks `size` nodes: around a node with an expensive choice, or live at a time of expensive use, or a mixture.
fn part(
    core: &Net,
    nodes: &[usize],
    above: &[Vec<f64>],
    choice: &[usize],
    size: usize,
    random: &mut Random,
) -> Vec<bool> {
    let mut free = vec![false; core.cost.len()];
    let near = match random.below(3) {
        0 => size,
        1 => size / 2,
        _ => 0,
    };
    let live = size - near;
    if live > 0 && !core.room.is_empty() {
        let time = random.place(&core.price);
        let uses = |&&node: &&usize| core.loads[node].iter().any(|load| load.lo <= time && time < load.hi);
        let mut living: Vec<usize> = nodes.iter().filter(uses).copied().collect();
        for _ in 0..live.min(living.len()) {
            free[living.swap_remove(random.below(living.len()))] = true;
        }
    }
    let weights: Vec<f64> = if random.below(3) == 0 {
        vec![1.0; nodes.len()]
    } else {
        nodes.iter().map(|&node| above[node][choice[node]].min(f64::MAX / nodes.len() as f64)).collect()
    };
    let mut count = free.iter().filter(|&&free| free).count();
    while count < size.min(nodes.len()) {
        count += grow(core, &mut free, nodes[random.place(&weights)], size - count, random);
        count += usize::from(!std::mem::replace(&mut free[nodes[random.below(nodes.len())]], true));
    }
    free
}

/// Marks up to `most` nodes around a node. Returns their number.
fn grow(core: &Net, free: &mut [bool], first: usize, most: usize, random: &mut Random) -> usize {
    let mut rim = vec![first];
    let mut count = 0;
    while count < most && !rim.is_empty() {
        let node = rim.swap_remove(random.below(rim.len()));
        if std::mem::replace(&mut free[node], true) {
            continue;
        }
        count += 1;
        rim.extend(core.near[node].iter().map(|&edge| core.edges[edge].other(node)).filter(|&other| !free[other]));
    }
    count
}
