//! Work for all cores.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// What a function gives for each of some items, in their order. Each core goes through a stretch of neighbours, which have much
/// in common that two cores would wait for each other to work out, and then helps the others from the far end of theirs.
pub fn each<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if cores < 2 {
        return items.iter().map(of).collect();
    }
    let bound = |core: usize| core * items.len() / cores;
    let left: Vec<_> = (0..cores).map(|core| Mutex::new(bound(core)..bound(core + 1))).collect();
    let next = |core: usize, from: usize| {
        let mut left = left[from].lock().unwrap_or_else(PoisonError::into_inner);
        if core == from { left.next() } else { left.next_back() }
    };
    let go = &|core: usize| {
        let mut given = Vec::new();
        for from in (0..cores).map(|step| (core + step) % cores) {
            while let Some(at) = next(core, from) {
                given.push((at, of(&items[at])));
            }
        }
        given
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|core| scope.spawn(move || go(core))).collect();
        let mut all = go(0);
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, given)| given).collect()
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
