//! What data-parallel ranks exchange: gradients, and under ZeRO shards of parameters; what of it nothing hides.
//! Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP).

use super::place::{expert_replicas, replicas, sharded};
use cost::{Group, Machine, Profile, Talk};
use ir::goal::Layout;

/// The ranks that hold the same parameters, and what they talk about.
#[derive(Clone, Debug)]
pub(super) struct Replicas<'a> {
    machine: &'a Machine<'a>,
    /// The stage of ZeRO under which micro-batches run.
    pub(super) zero: u8,
    /// Whether communication hides behind compute.
    hides: bool,
    /// Of dense parameters and of experts: those who share a copy, and those who have the same part.
    groups: [(Group, Group); 2],
}

/// Seconds that a rank's parameters cost once a step, beyond what is hidden.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Exchange {
    /// Of gradients, after the last backward.
    pub(super) reduce: f64,
    /// Of updated parameters, after the update.
    pub(super) gather: f64,
}

impl<'a> Replicas<'a> {
    pub(super) fn new(layout: &Layout, microbatches: u32, machine: &'a Machine<'a>) -> Replicas<'a> {
        let hides = layout.dp_overlap.unwrap_or(machine.stack.hides("dp"));
        let groups = [replicas(layout), expert_replicas(layout)].map(|group| sharded(group, layout.shard));
        let facts = &machine.stack.facts;
        let stays_whole = microbatches > 1 && (facts.accumulates_whole || facts.pipelines_whole && layout.pp > 1);
        let zero = if stays_whole { layout.zero.min(1) } else { layout.zero };
        Replicas { machine, zero, hides, groups }
    }

    /// Into how many parts dense parameters, and experts, are cut.
    pub(super) fn parts(&self) -> [f64; 2] {
        self.groups.map(|(shards, _)| shards.ranks as f64)
    }

    /// Seconds in which the gradients of parameters are summed, to those who update them, in messages of at most `bucket`
    /// bytes.
    fn reduce(&self, elements: [f64; 2], bucket: f64) -> f64 {
        let wire = self.machine.recipe.wire;
        let talk = |talk: Talk, elements: f64, group: Group| {
            let messages = (elements * wire / bucket).ceil().max(1.0);
            messages * self.machine.talk(talk, elements * wire / messages, group)
        };
        let of = |(elements, (shards, copies)): (f64, (Group, Group))| {
            if self.zero == 0 {
                let all = Group { ranks: shards.ranks * copies.ranks, ..shards };
                return talk(Talk::AllReduce, elements, all);
            }
            let part = elements / shards.ranks as f64;
            talk(Talk::ReduceScatter, elements, shards) + talk(Talk::AllReduce, part, copies)
        };
        elements.into_iter().zip(self.groups).map(of).sum()
    }

    /// Seconds in which parts of so many parameters come to all who share a copy; all at once, or each by itself.
    fn gather(&self, elements: [f64; 2], each: usize) -> f64 {
        let (parameter, each) = (self.machine.recipe.parameter, each.max(1) as f64);
        let of = |(elements, (shards, _)): (f64, (Group, Group))| {
            each * self.machine.talk(Talk::AllGather, elements * parameter / each, shards)
        };
        elements.into_iter().zip(self.groups).map(of).sum()
    }

    /// What is left of seconds of communication beside seconds of compute that can hide it.
    fn left(&self, communication: f64, compute: f64) -> f64 {
        if !self.hides {
            return communication;
        }
        let hidden = communication.min(compute) * self.machine.stack.fitted.overlap.value;
        // What is hidden takes some of the device from what hides it.
        communication - hidden + hidden * (self.machine.contention() - 1.0)
    }

    /// Seconds per micro-batch of a stage with these runs that parts of parameters cost, with the forward and with the
    /// backward. ZeRO-3 gathers each block before its forward and again before its backward, the next one while a block
    /// computes, and both ZeRO-2 and 3 scatter its gradients; the first gather and the last scatter have nothing beside them.
    pub(super) fn shards(&self, runs: &[&Profile]) -> [f64; 2] {
        if self.zero < 2 {
            return [0.0; 2];
        }
        let elements = |profile: &Profile| [profile.dense, profile.experts];
        let gather = |profile: &Profile| if self.zero > 2 { self.gather(elements(profile), 1) } else { 0.0 };
        // Runs of one block follow each other: they are alike.
        let each = |of: &dyn Fn(&Profile) -> f64| {
            let mut seconds: Vec<f64> = Vec::with_capacity(runs.len());
            for (run, profile) in runs.iter().enumerate() {
                let alike = run.checked_sub(1).filter(|&before| std::ptr::eq(runs[before], *profile));
                seconds.push(alike.map_or_else(|| of(profile), |before| seconds[before]));
            }
            seconds
        };
        let gathers = each(&gather);
        let reduces = each(&|profile| self.reduce(elements(profile), f64::INFINITY));
        let mut seconds = [gathers.first().copied().unwrap_or(0.0), reduces.first().copied().unwrap_or(0.0)];
        for (run, profile) in runs.iter().enumerate() {
            let next = gathers.get(run + 1).copied().unwrap_or(0.0);
            seconds[0] += self.left(next, profile.f.total());
            // The backward goes the other way: the block before is gathered, the one after has given its gradients.
            let before = run.checked_sub(1).map_or(0.0, |run| gathers[run]);
            let after = reduces.get(run + 1).copied().unwrap_or(0.0);
            let backward = profile.again.total() + profile.i.total() + profile.w.total();
            seconds[1] += self.left(before + after, backward);
        }
        if self.zero > 2 {
            seconds[1] += gathers.last().copied().unwrap_or(0.0) * f64::from(u8::from(runs.len() > 1));
        }
        seconds
    }

    /// What a rank's parameters cost once a step. Gradients go in buckets beside `backward` seconds of the last
    /// micro-batch's backward, all but the last bucket; updated parts are gathered at once, or beside `forward` seconds of
    /// the next step's first forward where the stack does so, tensor by tensor or all at once.
    pub(super) fn exchange(&self, elements: [f64; 2], tensors: usize, forward: f64, backward: f64) -> Exchange {
        // Only what is to be hidden is sent in parts.
        let bucket = if self.hides { self.machine.stack.facts.bucket } else { f64::INFINITY };
        let reduce = if self.zero < 2 { self.reduce(elements, bucket) } else { 0.0 };
        let each = if self.machine.stack.facts.gathers_each { tensors } else { 1 };
        let gather = if matches!(self.zero, 1 | 2) { self.gather(elements, each) } else { 0.0 };
        let bytes = (elements[0] + elements[1]) * self.machine.recipe.wire;
        let last = reduce * (bucket / bytes.max(1.0)).min(1.0);
        let hidden_update = self.machine.stack.facts.hides_update;
        Exchange {
            reduce: last + self.left(reduce - last, backward),
            gather: if hidden_update { self.left(gather, forward) } else { gather },
        }
    }
}
