//! Communication of data-parallel ranks: gradients, and under ZeRO shards of parameters; and the part that no computation
//! hides.
//! Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP).

use super::place::{expert_replicas, replicas, sharded};
use cost::{CollectiveKind, Group, Platform, Profile};
use ir::options::ParallelConfig;
use smallvec::SmallVec;

/// The ranks that hold the same parameters, and what they talk about.
#[derive(Clone, Debug)]
pub(super) struct Replicas<'a> {
    pub(super) platform: &'a Platform<'a>,
    /// The stage of ZeRO under which micro-batches run.
    pub(super) zero: u8,
    /// True if communication hides behind compute.
    hides: bool,
    /// For dense parameters and for experts: the ranks that share a copy, and those with the same shard.
    groups: [(Group, Group); 2],
}

/// Seconds that parameters cost: those of a rank once a step beyond what is hidden, or those of a run with nothing beside them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Exchange {
    /// Seconds of gradients after the last backward.
    pub(super) reduce: f64,
    /// Seconds of updated parameters after the update.
    pub(super) gather: f64,
}

/// Runs that follow each other and are alike, and what the parameters of each talk about.
pub(super) struct Row<'a> {
    pub(super) profile: &'a Profile,
    pub(super) times: usize,
    pub(super) exchange: Exchange,
}

impl Row<'_> {
    /// How many of its runs have what before and after them.
    fn places(&self, before: Exchange, after: Exchange) -> [(f64, Exchange, Exchange); 3] {
        let own = self.exchange;
        match self.times {
            1 => [(1.0, before, after), (0.0, own, own), (0.0, own, own)],
            times => [(1.0, before, own), ((times - 2) as f64, own, own), (1.0, own, after)],
        }
    }
}

impl<'a> Replicas<'a> {
    pub(super) fn new(parallel: &ParallelConfig, microbatches: u32, platform: &'a Platform<'a>) -> Replicas<'a> {
        let hides = parallel.dp_overlap.unwrap_or(platform.stack.hides("dp"));
        let groups = [replicas(parallel), expert_replicas(parallel)].map(|group| sharded(group, parallel.shard));
        let facts = &platform.stack.facts;
        let stays_whole = microbatches > 1 && (facts.accumulates_whole || facts.pipelines_whole && parallel.pp > 1);
        let zero = if stays_whole { parallel.zero.min(1) } else { parallel.zero };
        Replicas { platform, zero, hides, groups }
    }

    /// Into how many parts dense parameters, and experts, are cut.
    pub(super) fn parts(&self) -> [f64; 2] {
        self.groups.map(|(shards, _)| shards.ranks as f64)
    }

    /// Seconds in which the gradients of parameters are summed, to those who update them, in messages of at most `bucket`
    /// bytes.
    fn reduce(&self, elements: [f64; 2], bucket: f64) -> f64 {
        let wire = self.platform.recipe.wire;
        let exchange = |exchange: CollectiveKind, elements: f64, group: Group| {
            let messages = (elements * wire / bucket).ceil().max(1.0);
            messages * self.platform.collective_time(exchange, elements * wire / messages, group)
        };
        let of = |(elements, (shards, copies)): (f64, (Group, Group))| {
            if self.zero == 0 {
                let all = Group { ranks: shards.ranks * copies.ranks, ..shards };
                return exchange(CollectiveKind::AllReduce, elements, all);
            }
            let part = elements / shards.ranks as f64;
            exchange(CollectiveKind::ReduceScatter, elements, shards)
                + exchange(CollectiveKind::AllReduce, part, copies)
        };
        elements.into_iter().zip(self.groups).map(of).sum()
    }

    /// Seconds in which parts of so many parameters come to all who share a copy.
    fn gather(&self, elements: [f64; 2]) -> f64 {
        let of = |(elements, (shards, _)): (f64, (Group, Group))| {
            self.platform.collective_time(CollectiveKind::AllGather, elements * self.platform.recipe.parameter, shards)
        };
        elements.into_iter().zip(self.groups).map(of).sum()
    }

    /// Seconds of communication that these seconds of compute cannot hide.
    fn left(&self, communication: f64, compute: f64) -> f64 {
        if !self.hides {
            return communication;
        }
        let hidden = communication.min(compute) * self.platform.stack.fitted.overlap.value;
        // What is hidden takes some of the device from what hides it.
        communication - hidden + hidden * (self.platform.contention() - 1.0)
    }

    /// Seconds per micro-batch of a stage with these runs that parts of parameters cost, with the forward and with the
    /// backward. ZeRO-3 gathers each block before its forward and again before its backward, the next one while a block
    /// computes, and both ZeRO-2 and 3 scatter its gradients; the first gather and the last scatter have nothing beside them.
    /// What is gathered stays for the backward (`stays`) where nothing else is computed in between: on stages of one run.
    pub(super) fn shards<'p>(&self, rows: impl Iterator<Item = Row<'p>>, stays: bool) -> [f64; 2] {
        if self.zero < 2 {
            return [0.0; 2];
        }
        let rows: SmallVec<[Row<'_>; 4]> = rows.collect();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return [0.0; 2] };
        let mut seconds = [first.exchange.gather, first.exchange.reduce];
        for (at, row) in rows.iter().enumerate() {
            let before = at.checked_sub(1).map_or(Exchange::default(), |at| rows[at].exchange);
            let after = rows.get(at + 1).map_or(Exchange::default(), |row| row.exchange);
            let backward = row.profile.again.total() + row.profile.i.total() + row.profile.w.total();
            for (times, before, after) in row.places(before, after) {
                seconds[0] += times * self.left(after.gather, row.profile.f.total());
                // The backward goes the other way: the block before is gathered, the one after has given its gradients.
                let again = if stays { 0.0 } else { before.gather };
                seconds[1] += times * self.left(again + after.reduce, backward);
            }
        }
        if !stays {
            seconds[1] += last.exchange.gather;
        }
        seconds
    }

    /// Exchanges of the parameters of each block instance that every micro-batch needs, without overlap.
    pub(super) fn exchanges(&self, profiles: &[Profile]) -> Vec<Exchange> {
        let of = |profile: &Profile| {
            let elements = [profile.dense, profile.experts];
            let gather = if self.zero > 2 { self.gather(elements) } else { 0.0 };
            Exchange { gather, reduce: self.reduce(elements, f64::INFINITY) }
        };
        if self.zero < 2 { vec![Exchange::default(); profiles.len()] } else { profiles.iter().map(of).collect() }
    }

    /// Seconds of parameters once a step on the average rank, given the average numbers of elements and the seconds of compute
    /// beside it: as if all went in one message of endless size. What is left beside compute is convex in both.
    pub(super) fn least_exchange(&self, elements: [f64; 2], forward: f64, backward: f64) -> Exchange {
        const ENDLESS: f64 = 1e15;
        let rate = |of: &dyn Fn([f64; 2]) -> f64| {
            [elements[0] * of([ENDLESS, 0.0]), elements[1] * of([0.0, ENDLESS])].into_iter().sum::<f64>() / ENDLESS
        };
        let reduce = if self.zero < 2 { rate(&|elements| self.reduce(elements, f64::INFINITY)) } else { 0.0 };
        let gather = if matches!(self.zero, 1 | 2) { rate(&|elements| self.gather(elements)) } else { 0.0 };
        self.beside(reduce, gather, forward, backward)
    }

    /// Seconds of reductions and gathers that compute cannot hide.
    fn beside(&self, reduce: f64, gather: f64, forward: f64, backward: f64) -> Exchange {
        let hides_update = self.platform.stack.facts.hides_update;
        Exchange {
            reduce: self.left(reduce, backward),
            gather: if hides_update { self.left(gather, forward) } else { gather },
        }
    }

    /// Seconds of a rank's parameters once a step. Gradients go in buckets during `backward` seconds of the last
    /// micro-batch's backward, all but the last bucket, which ends with the tensor that fills it. Updated shards are gathered at once,
    /// or during `forward` seconds of the next step's first forward if the stack does so. They are then copied to their places.
    pub(super) fn exchange(&self, elements: [f64; 2], tensors: usize, forward: f64, backward: f64) -> Exchange {
        let bytes = (elements[0] + elements[1]) * self.platform.recipe.wire;
        // Only what is to be hidden is sent in parts.
        let bucket = self.platform.stack.facts.bucket + bytes / tensors.max(1) as f64;
        let bucket = if self.hides { bucket } else { f64::INFINITY };
        let reduce = if self.zero < 2 { self.reduce(elements, bucket) } else { 0.0 };
        let [ranks, _] = self.parts();
        let copies = if ranks > 1.0 { self.platform.stack.facts.part * tensors as f64 * ranks } else { 0.0 };
        let gather = if matches!(self.zero, 1 | 2) { self.gather(elements) + copies } else { 0.0 };
        let last = reduce * (bucket / bytes.max(1.0)).min(1.0);
        let Exchange { reduce, gather } = self.beside(reduce - last, gather, forward, backward);
        Exchange { reduce: last + reduce, gather }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::{Cluster, Recipe, Stack};

    fn exchange(stack: &Stack, zero: u8, tensors: usize) -> Exchange {
        let cluster = Cluster::find("h100-p5-efa").unwrap();
        let platform = Platform { cluster: &cluster, stack, recipe: &Recipe::bf16() };
        let parallel = ParallelConfig { dp: 64, zero, ..ParallelConfig::default() };
        Replicas::new(&parallel, 1, &platform).exchange([1e9, 0.0], tensors, 1.0, 10.0)
    }

    #[test]
    fn parts_are_copied_one_by_one() {
        let mut stack = Stack::find("nanotron-2024").unwrap();
        let with = exchange(&stack, 1, 100).gather;
        let part = std::mem::take(&mut stack.facts.part);
        assert!((with - exchange(&stack, 1, 100).gather - 6400.0 * part).abs() < 1e-9);
        assert_eq!(exchange(&stack, 0, 100).gather, 0.0);
    }

    /// Fewer tensors are larger ones, and so are the buckets that end with them: of a perfect overlap the last one shows.
    #[test]
    fn a_bucket_ends_with_the_tensor_that_fills_it() {
        let mut stack = Stack::find("nanotron-2024").unwrap();
        (stack.fitted.overlap.value, stack.facts.comm_sms) = (1.0, 0.0);
        let all = |stack: &Stack, tensors| exchange(stack, 0, tensors).reduce;
        assert!(all(&stack, 4) > 2.0 * all(&stack, 1000) && all(&stack, 1000) > 0.0);
        stack.facts.hides.clear();
        assert_eq!(all(&stack, 4), all(&stack, 1000));
    }
}
