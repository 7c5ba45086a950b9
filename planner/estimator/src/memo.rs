//! Concurrent memo tables.

use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key. Two threads that ask for the same at once may both work it out; one result stays: for what is soon made.
#[derive(Debug)]
pub(crate) struct Memo<K, V> {
    known: Mutex<FxHashMap<K, Arc<V>>>,
}

impl<K, V> Default for Memo<K, V> {
    fn default() -> Memo<K, V> {
        Memo { known: Mutex::default() }
    }
}

impl<K: Hash + Eq + Clone, V> Memo<K, V> {
    /// One that knows a value.
    pub(crate) fn with(key: K, value: V) -> Memo<K, V> {
        Memo { known: Mutex::new([(key, Arc::new(value))].into_iter().collect()) }
    }

    /// The value of a key, if it is known.
    fn known(&self, key: &K) -> Option<Arc<V>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// The value of a key, made if it is not known. What fails is tried again when asked for again.
    pub(crate) fn get<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        if let Some(value) = self.known(key) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(key.clone()).or_insert(value)))
    }
}

/// The same for expensive values: who asks for one that another thread works out waits for it.
#[derive(Debug)]
pub struct Once<K, V> {
    cells: Memo<K, Mutex<Option<Arc<V>>>>,
}

impl<K, V> Default for Once<K, V> {
    fn default() -> Once<K, V> {
        Once { cells: Memo::default() }
    }
}

impl<K: Hash + Eq + Clone, V> Once<K, V> {
    /// The value of a key, if it has been made.
    pub fn known(&self, key: &K) -> Option<Arc<V>> {
        let cell = self.cells.known(key)?;
        let value = cell.lock().unwrap_or_else(PoisonError::into_inner);
        value.clone()
    }

    /// As [`Memo::get`].
    pub fn get<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let cell = self.cells.get(key, || Ok(Mutex::default()))?;
        let mut value = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        let made = Arc::new(make()?);
        *value = Some(Arc::clone(&made));
        Ok(made)
    }
}
