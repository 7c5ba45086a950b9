//! The order of tokens with which ranks that share a sequence have as much to attend to.
//!
//! In causal attention a query sees the keys before it, so that the last part of a sequence has most work. Cut into twice as many parts as there
//! are ranks, the first rank gets the first part and the last one, the second rank the second and the last but one, and so on (Dubey et al.
//! 2024, The Llama 3 Herd of Models, section 3.3.2). Positions move with their tokens, so that attention and rotations are the same.

/// For each place of a sequence of `seq` tokens the place whose token it gets, for `ranks` ranks; `None` if the parts are not even.
///
/// Each of the `slices` of a sequence is an order of its own: a slice attends to itself and to those before it, so that all of its tokens
/// must stay in it. Its ranks then have as much to attend to in the slice, and the same in those before.
pub fn zig_zag(seq: usize, slices: usize, ranks: usize) -> Option<Vec<usize>> {
    let parts = 2 * ranks;
    if ranks < 2 || slices == 0 || !seq.is_multiple_of(parts * slices) {
        return None;
    }
    let length = seq / slices / parts;
    let mut places = Vec::with_capacity(seq);
    for first in (0..slices).map(|slice| slice * parts) {
        for rank in 0..ranks {
            for part in [first + rank, first + parts - 1 - rank] {
                places.extend(part * length..(part + 1) * length);
            }
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::zig_zag;

    #[test]
    fn ranks_get_parts_from_both_ends() {
        assert_eq!(zig_zag(8, 1, 2), Some(vec![0, 1, 6, 7, 2, 3, 4, 5]));
        assert_eq!(zig_zag(12, 1, 3), Some(vec![0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7]));
        assert_eq!([zig_zag(6, 1, 2), zig_zag(8, 1, 1), zig_zag(9, 1, 2)], [None, None, None]);
    }

    #[test]
    fn tokens_stay_in_their_slice() {
        assert_eq!(zig_zag(8, 2, 2), Some(vec![0, 3, 1, 2, 4, 7, 5, 6]));
        for (slices, ranks) in [(2, 2), (2, 3), (3, 2), (4, 2)] {
            let length = 12;
            let order = zig_zag(slices * length, slices, ranks).unwrap();
            for (slice, places) in order.chunks(length).enumerate() {
                assert!(
                    places.iter().all(|place| place / length == slice),
                    "{slices} slices, {ranks} ranks: {order:?}"
                );
            }
        }
        assert_eq!(zig_zag(12, 2, 2), None);
    }

    #[test]
    fn every_rank_has_as_many_pairs() {
        // A query at place i sees i + 1 keys.
        let pairs = |rank: &[usize]| rank.iter().map(|place| place + 1).sum::<usize>();
        for slices in [1, 2, 4] {
            let order = zig_zag(64, slices, 4).unwrap();
            for slice in order.chunks(64 / slices) {
                let pairs: Vec<usize> = slice.chunks(16 / slices).map(pairs).collect();
                assert!(pairs.iter().all(|&other| other == pairs[0]), "{slices} slices: {pairs:?}");
            }
        }
    }
}
