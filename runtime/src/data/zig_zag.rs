//! The order of tokens with which ranks that share a sequence have as much to attend to.
//!
//! In causal attention a query sees the keys before it, so that the last part of a sequence has most work. Cut into twice as many parts as there
//! are ranks, the first rank gets the first part and the last one, the second rank the second and the last but one, and so on (Dubey et al.
//! 2024, The Llama 3 Herd of Models, section 3.3.2). Positions move with their tokens, so that attention and rotations are the same.

/// For each place of a sequence of `seq` tokens the place whose token it gets, for `ranks` ranks; `None` if the parts are not even.
pub fn zig_zag(seq: usize, ranks: usize) -> Option<Vec<usize>> {
    let parts = 2 * ranks;
    if ranks < 2 || !seq.is_multiple_of(parts) {
        return None;
    }
    let length = seq / parts;
    let part = |part: usize| part * length..(part + 1) * length;
    Some((0..ranks).flat_map(|rank| part(rank).chain(part(parts - 1 - rank))).collect())
}

#[cfg(test)]
mod tests {
    use super::zig_zag;

    #[test]
    fn ranks_get_parts_from_both_ends() {
        assert_eq!(zig_zag(8, 2), Some(vec![0, 1, 6, 7, 2, 3, 4, 5]));
        assert_eq!(zig_zag(12, 3), Some(vec![0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7]));
        assert_eq!([zig_zag(6, 2), zig_zag(8, 1), zig_zag(9, 2)], [None, None, None]);
    }

    #[test]
    fn every_rank_has_as_many_pairs() {
        let order = zig_zag(64, 4).unwrap();
        // A query at place i sees i + 1 keys.
        let pairs: Vec<usize> = order.chunks(16).map(|rank| rank.iter().map(|place| place + 1).sum()).collect();
        assert!(pairs.iter().all(|&pairs| pairs == 64 * 65 / 2 / 4), "{pairs:?}");
    }
}
