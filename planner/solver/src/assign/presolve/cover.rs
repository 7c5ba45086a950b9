//! Times that another time makes redundant: there every choice of every node uses at least the same, and the limit is no larger. A
//! model of equal layers has many: most of a layer's times are like the last layer's, where more values are live.

use std::collections::HashMap;

use super::fit::keep_times;
use crate::assign::net::{Load, Net};

/// The largest number of nodes times times that is looked at.
const LARGEST: usize = 40_000_000;

/// The most comparisons of what nodes use.
const EFFORT: usize = 50_000_000;

/// Use of a node's choices along the times: its different uses, and the index of the use at each time.
struct Profile {
    uses: Vec<Vec<i64>>,
    at: Vec<u32>,
}

/// Keeps only times that no other one covers, and states loads as runs of times that do not overlap.
pub(crate) fn cover(net: &mut Net) {
    let times = net.room.len();
    let nodes: Vec<usize> = net.nodes().filter(|&node| !net.loads[node].is_empty()).collect();
    if nodes.is_empty() || nodes.len() * times > LARGEST {
        return;
    }
    let profiles: Vec<Profile> =
        nodes.iter().map(|&node| profile(&net.loads[node], net.choices(node), times)).collect();
    for (&node, profile) in nodes.iter().zip(&profiles) {
        net.loads[node] = runs(profile);
    }
    let kept = uncovered(&net.room, &profiles);
    if kept.len() < times {
        keep_times(net, &kept);
        for node in nodes {
            join_runs(&mut net.loads[node]);
        }
    }
}

fn profile(loads: &[Load], choices: usize, times: usize) -> Profile {
    let mut changes: Vec<(usize, i64, &Load)> = Vec::new();
    for load in loads {
        changes.push((load.lo, 1, load));
        changes.push((load.hi, -1, load));
    }
    changes.sort_by_key(|change| change.0);
    let mut known = HashMap::from([(vec![0; choices], 0)]);
    let mut profile = Profile { uses: vec![vec![0; choices]], at: vec![0; times] };
    let mut now = vec![0; choices];
    let mut next = 0;
    while next < changes.len() {
        let time = changes[next].0;
        while next < changes.len() && changes[next].0 == time {
            let (_, sign, load) = changes[next];
            now.iter_mut().zip(&load.amount).for_each(|(now, amount)| *now += sign * amount);
            next += 1;
        }
        let end = changes.get(next).map_or(times, |change| change.0);
        let id = *known.entry(now.clone()).or_insert_with(|| {
            profile.uses.push(now.clone());
            profile.uses.len() as u32 - 1
        });
        profile.at[time.min(times)..end].fill(id);
    }
    profile
}

/// The runs of times in which the use is the same.
fn runs(profile: &Profile) -> Vec<Load> {
    let mut loads: Vec<Load> = Vec::new();
    let mut lo = 0;
    while lo < profile.at.len() {
        let id = profile.at[lo];
        let hi = lo + profile.at[lo..].iter().take_while(|&&other| other == id).count();
        if id != 0 {
            loads.push(Load { lo, hi, amount: profile.uses[id as usize].clone() });
        }
        lo = hi;
    }
    loads
}

/// Joins runs that are side by side and use the same.
fn join_runs(loads: &mut Vec<Load>) {
    loads.dedup_by(|later, first| {
        let same = first.hi == later.lo && first.amount == later.amount;
        if same {
            first.hi = later.hi;
        }
        same
    });
}

/// The times that no other one covers.
fn uncovered(room: &[i64], profiles: &[Profile]) -> Vec<usize> {
    let most: Vec<Vec<i64>> =
        profiles.iter().map(|profile| profile.uses.iter().map(|uses| greatest(uses)).collect()).collect();
    let totals = (0..room.len()).map(|time| {
        let uses = profiles.iter().zip(&most).map(|(profile, most)| i128::from(most[profile.at[time] as usize]));
        (uses.sum(), time)
    });
    let mut times: Vec<(i128, usize)> = totals.collect();
    times.sort_by_key(|&(total, time)| (std::cmp::Reverse(total), room[time], time));
    let mut kept: Vec<usize> = Vec::new();
    let mut order: Vec<&Profile> = profiles.iter().collect();
    let mut effort = 0;
    for (_, time) in times {
        let mut others = kept.iter().filter(|&&other| room[other] <= room[time]);
        if effort > EFFORT || !others.any(|&other| covers(&mut order, other, time, &mut effort)) {
            kept.push(time);
        }
    }
    kept.sort_unstable();
    kept
}

/// Returns whether nothing uses more at `time` than at `other`. A load that does use more is tested earlier the next time.
fn covers(order: &mut [&Profile], other: usize, time: usize, effort: &mut usize) -> bool {
    let more = order.iter().position(|profile| {
        let (here, there) = (profile.at[time], profile.at[other]);
        here != there && !no_more(&profile.uses[here as usize], &profile.uses[there as usize])
    });
    *effort += more.map_or(order.len(), |place| place + 1);
    if let Some(place) = more {
        order.swap(place, place / 2);
    }
    more.is_none()
}

fn greatest(uses: &[i64]) -> i64 {
    uses.iter().copied().max().unwrap_or(0)
}

fn no_more(uses: &[i64], others: &[i64]) -> bool {
    uses.iter().zip(others).all(|(one, other)| one <= other)
}
