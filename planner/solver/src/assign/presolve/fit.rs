//! Reductions from the limit: loads without unavoidable use, choices that cannot fit, times that cannot bind.

use crate::assign::net::{Infeasible, Load, Net};

/// Updates loads and limit, and drops choices and times.
pub(super) fn fit(net: &mut Net) -> Result<(), Infeasible> {
    loop {
        normalise(net)?;
        drop_times(net);
        if !drop_choices(net)? {
            return Ok(());
        }
    }
}

/// Takes from each load what its least choice uses, and joins loads of the same times.
fn normalise(net: &mut Net) -> Result<(), Infeasible> {
    let times = net.room.len() + 1;
    let mut change = std::mem::replace(&mut net.spent, vec![0; times]);
    for node in net.nodes().collect::<Vec<_>>() {
        let mut loads: Vec<Load> = Vec::new();
        for mut load in std::mem::take(&mut net.loads[node]) {
            let least = load.amount.iter().copied().min().unwrap_or(0);
            change[load.lo] += least;
            change[load.hi] -= least;
            load.amount.iter_mut().for_each(|amount| *amount -= least);
            match loads.iter_mut().find(|other| (other.lo, other.hi) == (load.lo, load.hi)) {
                Some(same) => same.amount.iter_mut().zip(load.amount).for_each(|(sum, amount)| *sum += amount),
                None => loads.push(load),
            }
        }
        let before = loads.len();
        loads.retain(|load| load.amount.iter().any(|&amount| amount > 0));
        net.touched[node] |= loads.len() < before;
        net.loads[node] = loads;
    }
    let mut sum = 0;
    for (room, change) in net.room.iter_mut().zip(change) {
        sum += change;
        *room -= sum;
    }
    if net.room.iter().any(|&room| room < 0) { Err(Infeasible) } else { Ok(()) }
}

/// Drops times at which all loads fit together, and those at which another time has larger loads and no larger limit.
fn drop_times(net: &mut Net) {
    let times = net.room.len();
    let mut most = vec![0i64; times + 1];
    let mut starts = vec![0usize; times + 1];
    let mut ends = vec![0usize; times + 1];
    for load in net.loads.iter().flatten() {
        let amount = load.amount.iter().copied().max().unwrap_or(0);
        most[load.lo] = most[load.lo].saturating_add(amount);
        most[load.hi] = most[load.hi].saturating_sub(amount);
        starts[load.lo] += 1;
        ends[load.hi] += 1;
    }
    let mut kept: Vec<usize> = Vec::new();
    let (mut sum, mut begun, mut ended) = (0i64, 0, 0);
    let mut at_kept: Vec<(usize, usize)> = Vec::new();
    for time in 0..times {
        sum = sum.saturating_add(most[time]);
        begun += starts[time];
        ended += ends[time];
        if sum <= net.room[time] {
            continue;
        }
        while let (Some(&last), Some(&(_, gone))) = (kept.last(), at_kept.last()) {
            if gone != ended || net.room[last] < net.room[time] {
                break;
            }
            kept.pop();
            at_kept.pop();
        }
        let covered = kept.last().zip(at_kept.last());
        if !covered.is_some_and(|(&last, &(came, _))| came == begun && net.room[last] <= net.room[time]) {
            kept.push(time);
            at_kept.push((begun, ended));
        }
    }
    if kept.len() < times {
        keep_times(net, &kept);
    }
}

/// Leaves only the times `kept`, in order.
pub(super) fn keep_times(net: &mut Net, kept: &[usize]) {
    for (node, loads) in net.loads.iter_mut().enumerate() {
        let before = loads.len();
        for load in loads.iter_mut() {
            for time in [&mut load.lo, &mut load.hi] {
                *time = kept.partition_point(|&kept| kept < *time);
            }
        }
        loads.retain(|load| load.lo < load.hi);
        net.touched[node] |= loads.len() < before;
    }
    net.room = kept.iter().map(|&time| net.room[time]).collect();
    net.spent = vec![0; kept.len() + 1];
    net.price = kept.iter().map(|&time| net.price[time]).collect();
}

/// Drops choices that exceed the limit at some time. Returns whether any were dropped.
fn drop_choices(net: &mut Net) -> Result<bool, Infeasible> {
    let least = Least::new(&net.room);
    let mut changed = false;
    for node in net.nodes().collect::<Vec<_>>() {
        let mut keep = vec![true; net.choices(node)];
        for load in &net.loads[node] {
            let room = least.within(load.lo, load.hi);
            keep.iter_mut().zip(&load.amount).for_each(|(keep, &amount)| *keep &= amount <= room);
        }
        changed |= net.restrict(node, &keep)?;
    }
    Ok(changed)
}

/// Least values of all runs whose length is a power of two.
struct Least {
    levels: Vec<Vec<i64>>,
}

impl Least {
    fn new(values: &[i64]) -> Least {
        let mut levels = vec![values.to_vec()];
        let mut run = 1;
        while 2 * run <= values.len() {
            let last = &levels[levels.len() - 1];
            levels.push((0..=values.len() - 2 * run).map(|at| last[at].min(last[at + run])).collect());
            run *= 2;
        }
        Least { levels }
    }

    /// The least value in `lo..hi`.
    fn within(&self, lo: usize, hi: usize) -> i64 {
        let level = (hi - lo).ilog2() as usize;
        self.levels[level][lo].min(self.levels[level][hi - (1 << level)])
    }
}
