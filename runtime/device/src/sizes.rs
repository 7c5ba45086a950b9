//! Local shapes and origins of a statement's tensors.

use crate::backend::KernelSite;
use crate::region::{local_len, row_major};
use ir::types::Type;

impl KernelSite<'_> {
    /// The local sizes of a type.
    ///
    /// # Errors
    /// It is stored flat, so that a rank has no box of it.
    pub fn sizes(&self, ty: &Type) -> Result<Vec<usize>, String> {
        if !ty.storage.is_empty() {
            return Err("the op needs entire rows, but the tensor is a flat shard".to_string());
        }
        Ok(ty.local_sizes(self.mesh, self.coordinates).into_iter().map(|size| size as usize).collect())
    }

    /// The local sizes of an operand.
    pub fn operand(&self, index: usize) -> Result<Vec<usize>, String> {
        self.sizes(self.operands[index])
    }

    /// The local sizes of a result.
    pub fn result(&self, index: usize) -> Result<Vec<usize>, String> {
        self.sizes(self.results[index])
    }

    /// The number of rows of a tensor: of places in its leading dims, or of elements.
    ///
    /// # Errors
    /// It is stored flat, so that a rank has no entire rows of it.
    pub fn rows(&self, ty: &Type, dims: Option<usize>) -> Result<usize, String> {
        let Some(count) = dims else { return Ok(local_len(ty, self.mesh, self.coordinates)) };
        Ok(self.sizes(ty)?[..count].iter().product())
    }

    /// The first index of a type's part in a dim.
    pub fn origin(&self, ty: &Type, dim: usize) -> i64 {
        ty.local_origin(self.mesh, self.coordinates)[dim] as i64
    }
}

/// The strides of a dense tensor with these letters and sizes in the order of other letters; 0 for those that it lacks.
pub fn strides_in(letters: &[String], sizes: &[usize], order: &[String]) -> Vec<usize> {
    let strides = row_major(sizes);
    let places = order.iter().map(|letter| letters.iter().position(|l| l == letter));
    places.map(|place| place.map_or(0, |place| strides[place])).collect()
}

/// Sequences of an attention, and the queries and keys of each: a block of a sequence counts as one.
pub fn in_blocks(block: Option<u64>, b: usize, s: usize, t: usize) -> [usize; 3] {
    let blocks = block.map_or(1, |block| (t / block as usize).max(1));
    [b * blocks, s / blocks, t / blocks]
}
