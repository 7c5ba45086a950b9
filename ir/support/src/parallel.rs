//! Parallel map over all cores, and two functions at once.

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

/// Calls two functions, on two cores if there are some.
pub fn both<A: Send, B: Send>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B + Send) -> (A, B) {
    if *HAS_THREADS { rayon::join(one, other) } else { (one(), other()) }
}

#[cfg(test)]
mod tests {
    use super::{both, each};

    #[test]
    fn two_functions_are_called_once_each() {
        assert_eq!(both(|| 1, || "two"), (1, "two"));
    }

    #[test]
    fn what_is_given_is_in_the_order_of_the_items() {
        for count in [0, 1, 2, 3, 7, 1000] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(each(&items, |item| item * item), items.iter().map(|item| item * item).collect::<Vec<_>>());
        }
    }
}
