//! What is worked out once and kept, for many threads.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key. Two threads that ask for the same at once may both work it out; one result stays.
#[derive(Debug)]
pub(super) struct Memo<K, V> {
    known: Mutex<HashMap<K, Arc<V>>>,
}

impl<K, V> Default for Memo<K, V> {
    fn default() -> Memo<K, V> {
        Memo { known: Mutex::new(HashMap::new()) }
    }
}

impl<K: Hash + Eq + Clone, V> Memo<K, V> {
    /// The value of a key, made if it is not known. What fails is tried again when asked for again.
    pub(super) fn get<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        if let Some(value) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(make()?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(key.clone()).or_insert(value)))
    }
}
