//! Parallel map over all cores.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::LazyLock;

/// True if the system can create threads; a process limit may prevent it.
static HAS_THREADS: LazyLock<bool> = LazyLock::new(|| {
    let built = ThreadPoolBuilder::new().build_global();
    // A pool built elsewhere is not a system error.
    built.err().is_none_or(|why| std::error::Error::source(&why).is_none())
});

/// Maps a function over items, in order. Each core processes a contiguous stretch, because neighbours share
/// intermediate results that two cores would wait on. An idle core steals from the far end of another stretch.
pub fn each<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if !*HAS_THREADS {
        return items.iter().map(of).collect();
    }
    items.par_iter().with_max_len(1).map(&of).collect()
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn what_is_given_is_in_the_order_of_the_items() {
        for count in [0, 1, 2, 3, 7, 1000] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(each(&items, |item| item * item), items.iter().map(|item| item * item).collect::<Vec<_>>());
        }
    }
}
