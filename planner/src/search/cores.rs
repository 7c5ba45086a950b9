//! Work for all cores.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::LazyLock;

/// Whether the system gives threads: under a limit it may not.
static HAS_THREADS: LazyLock<bool> = LazyLock::new(|| {
    let built = ThreadPoolBuilder::new().build_global();
    // Someone else may have built the pool, which is no error of the system.
    built.err().is_none_or(|why| std::error::Error::source(&why).is_none())
});

/// What a function gives for each of some items, in their order. Neighbours have much in common that two cores would wait for
/// each other to work out: a core goes through a stretch of them, and helps another from the far end of that one's.
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
