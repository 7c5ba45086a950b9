//! What a rank's memory is made of: dense tensors of 4-byte elements from a pool of free lists.
//!
//! A tensor is shared by cloning; the last holder to let go gives its memory back to the pool that it came from, so that
//! after the first step the same memory serves again. Who holds a tensor alone may write to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A pool of memory, one per rank: free blocks by their number of elements.
#[derive(Clone, Default)]
pub struct Pool(Arc<Lists>);

/// Free blocks by their number of elements.
#[derive(Default)]
struct Lists(Mutex<HashMap<usize, Vec<Arc<Block>>>>);

/// Memory of a tensor and the pool that it goes back to.
struct Block {
    data: Vec<f32>,
    home: Weak<Lists>,
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// A tensor of so many elements, whatever they are.
    pub fn alloc(&self, len: usize) -> Tensor {
        let free = self.0.locked(|lists| lists.get_mut(&len).and_then(Vec::pop));
        Tensor(free.or_else(|| Some(Arc::new(Block { data: vec![0.0; len], home: Arc::downgrade(&self.0) }))))
    }

    /// A tensor of zeros.
    pub fn zeros(&self, len: usize) -> Tensor {
        let mut tensor = self.alloc(len);
        tensor.write().fill(0.0);
        tensor
    }

    /// A tensor of these elements.
    pub fn floats(&self, values: &[f32]) -> Tensor {
        let mut tensor = self.alloc(values.len());
        tensor.write().copy_from_slice(values);
        tensor
    }

    /// Bytes that lie in the free lists.
    pub fn free_bytes(&self) -> usize {
        self.0.locked(|lists| lists.iter().map(|(len, blocks)| 4 * len * blocks.len()).sum())
    }
}

impl Lists {
    fn locked<R>(&self, f: impl FnOnce(&mut HashMap<usize, Vec<Arc<Block>>>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A dense tensor of `f32` or `i32` elements on a rank. Its shape is known to who uses it.
#[derive(Clone)]
pub struct Tensor(Option<Arc<Block>>);

impl Tensor {
    /// No elements, and no memory.
    pub const EMPTY: Tensor = Tensor(None);

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.floats().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as floats.
    pub fn floats(&self) -> &[f32] {
        self.0.as_ref().map_or(&[], |block| &block.data)
    }

    /// The elements as integers.
    pub fn ints(&self) -> &[i32] {
        let floats = self.floats();
        // SAFETY: the element types have the same size and alignment, and every bit pattern is a value of both.
        unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), floats.len()) }
    }

    /// Whether nobody else holds it.
    pub fn is_unique(&mut self) -> bool {
        self.0.as_mut().is_none_or(|block| Arc::get_mut(block).is_some())
    }

    /// The elements, to be written as floats.
    ///
    /// # Panics
    /// If somebody else holds the tensor.
    pub fn write(&mut self) -> &mut [f32] {
        match &mut self.0 {
            None => &mut [],
            Some(block) => &mut Arc::get_mut(block).expect("only a tensor held alone is written").data,
        }
    }

    /// The elements, to be written as integers.
    ///
    /// # Panics
    /// If somebody else holds the tensor.
    pub fn write_ints(&mut self) -> &mut [i32] {
        let floats = self.write();
        // SAFETY: as in `ints`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), floats.len()) }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let Some(mut block) = self.0.take() else { return };
        let Some(home) = Arc::get_mut(&mut block).and_then(|block| block.home.upgrade()) else { return };
        home.locked(|lists| lists.entry(block.data.len()).or_default().push(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_with_the_last_holder() {
        let pool = Pool::new();
        let mut a = pool.floats(&[1.0, 2.0]);
        let b = a.clone();
        assert!(!a.is_unique());
        drop(a);
        assert_eq!(pool.free_bytes(), 0);
        let place = b.floats().as_ptr();
        std::thread::spawn(move || drop(b)).join().unwrap();
        assert_eq!(pool.free_bytes(), 8);
        assert_eq!(pool.alloc(2).floats().as_ptr(), place);
    }

    #[test]
    fn integers_keep_their_bits() {
        let mut tensor = Pool::new().alloc(3);
        tensor.write_ints().copy_from_slice(&[-1, 0, i32::MAX]);
        assert_eq!(tensor.ints(), [-1, 0, i32::MAX]);
        assert!(Tensor::EMPTY.ints().is_empty());
    }
}
