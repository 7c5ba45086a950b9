//! Cached computations for many threads: queries, which compute an answer from its key alone, and memo tables.

use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A named computation of a database `D`. Each key is computed once: a thread that asks for a key that another thread
/// computes waits for that answer. Failures are answers too.
///
/// The computation is a plain function of the database and the key. It captures nothing, so an answer cannot depend on an
/// option that the key lacks. A computation must not ask for its own key.
#[derive(Debug)]
pub struct Query<D, K, V> {
    compute: fn(&D, &K) -> V,
    cells: Mutex<FxHashMap<K, Cell<V>>>,
}

/// The answer of a key, once it is computed.
type Cell<V> = Arc<OnceLock<V>>;

impl<D, K: Hash + Eq + Clone, V: Clone> Query<D, K, V> {
    /// A query without answers.
    pub fn new(compute: fn(&D, &K) -> V) -> Query<D, K, V> {
        Query { compute, cells: Mutex::default() }
    }

    /// The answer of a key, computed if it is the first time.
    pub fn get(&self, database: &D, key: &K) -> V {
        self.cell(key).get_or_init(|| (self.compute)(database, key)).clone()
    }

    /// The answer of a key, if it has been computed.
    pub fn known(&self, key: &K) -> Option<V> {
        locked(&self.cells).get(key).and_then(|cell| cell.get().cloned())
    }

    fn cell(&self, key: &K) -> Cell<V> {
        let mut cells = locked(&self.cells);
        match cells.get(key) {
            Some(cell) => Arc::clone(cell),
            None => Arc::clone(cells.entry(key.clone()).or_default()),
        }
    }
}

/// Values by key, each made at the first request for it. Unlike a [`Query`], the maker may use more than the key: a named
/// file, or any one member of the class that the key stands for. A failed attempt is repeated at the next request.
#[derive(Debug)]
pub struct Memo<K, V> {
    cells: Mutex<FxHashMap<K, Slot<V>>>,
}

/// The value of a key, once it is made.
type Slot<V> = Arc<Mutex<Option<Arc<V>>>>;

impl<K, V> Default for Memo<K, V> {
    fn default() -> Memo<K, V> {
        Memo { cells: Mutex::default() }
    }
}

impl<K: Hash + Eq + Clone, V> Memo<K, V> {
    /// A table with one value.
    pub fn with(key: K, value: V) -> Memo<K, V> {
        let cell = Arc::new(Mutex::new(Some(Arc::new(value))));
        Memo { cells: Mutex::new([(key, cell)].into_iter().collect()) }
    }

    /// The value of a key, made if it is missing. A thread that asks for a value that another thread makes waits for it.
    ///
    /// # Errors
    /// The maker failed.
    pub fn get<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let cell = {
            let mut cells = locked(&self.cells);
            match cells.get(key) {
                Some(cell) => Arc::clone(cell),
                None => Arc::clone(cells.entry(key.clone()).or_default()),
            }
        };
        let mut value = locked(&cell);
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        Ok(Arc::clone(value.insert(Arc::new(make()?))))
    }
}

/// A lock whose holder may have panicked: tables hold whole values at any time.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_key_is_computed_once_by_all_threads() {
        let query = Query::new(|calls: &AtomicUsize, key: &u64| {
            calls.fetch_add(1, Ordering::Relaxed);
            if *key > 2 { Err(format!("{key}")) } else { Ok(*key * 10) }
        });
        let calls = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..4).for_each(|key| drop(query.get(&calls, &key))));
            }
        });
        assert_eq!(calls.load(Ordering::Relaxed), 4);
        assert_eq!((query.known(&2), query.known(&3), query.known(&4)), (Some(Ok(20)), Some(Err("3".into())), None));
    }

    #[test]
    fn a_failed_value_is_made_at_the_next_request() {
        let memo: Memo<u64, u64> = Memo::with(1, 10);
        assert_eq!(memo.get(&2, || Err::<u64, _>("missing")), Err("missing"));
        assert_eq!(memo.get(&2, || Ok::<_, ()>(20)).map(|value| *value), Ok(20));
        assert_eq!(memo.get(&1, || Err::<u64, _>("known")).map(|value| *value), Ok(10));
    }
}
