//! Work for all cores.

use rayon::prelude::*;

/// What a function gives for each of some items, in their order. Neighbours have much in common that two cores would wait for
/// each other to work out: a core goes through a stretch of them, and helps another from the far end of that one's.
pub fn each<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    items.par_iter().map(&of).collect()
}
