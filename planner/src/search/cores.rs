//! Work for all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What a function gives for each of some items, in their order. Each core goes through a stretch of neighbours, which have much
/// in common that two cores would wait for each other to work out, and then helps the others.
pub fn each<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if cores < 2 {
        return items.iter().map(of).collect();
    }
    let stretch = items.len().div_ceil(cores);
    let next: Vec<AtomicUsize> = (0..cores).map(|core| AtomicUsize::new(core * stretch)).collect();
    let go = |core: usize| {
        let mut given = Vec::new();
        for own in (0..cores).map(|step| (core + step) % cores) {
            let end = ((own + 1) * stretch).min(items.len());
            while let at = next[own].fetch_add(1, Ordering::Relaxed)
                && at < end
            {
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
