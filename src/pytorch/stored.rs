//! Tensors of a class under the names of its files, as the parameters that they are.

use ir::graph::Model;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use std::collections::BTreeMap;
use weights::{Description, Names, Source};

/// Least norm of a tensor in comparisons, relative to the largest of all.
pub const FLOOR: f64 = 5e-3;

/// Elements of tensors by name.
pub type Tensors = BTreeMap<String, Vec<f32>>;

/// The tensors of a file.
#[derive(Default, Debug)]
pub struct Stored {
    /// Those of f32.
    pub floats: Tensors,
    /// Those of i32.
    pub ints: BTreeMap<String, Vec<i32>>,
}

impl Stored {
    /// Reads the bytes of a file of `safetensors`. Tensors of other formats are left out.
    ///
    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<Stored, SafeTensorError> {
        let tensors = SafeTensors::deserialize(bytes)?;
        let mut stored = Stored::default();
        for (name, view) in tensors.tensors() {
            let (words, _) = view.data().as_chunks::<4>();
            match view.dtype() {
                Dtype::F32 => {
                    drop(stored.floats.insert(name, words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
                }
                Dtype::I32 => {
                    drop(stored.ints.insert(name, words.iter().map(|word| i32::from_le_bytes(*word)).collect()))
                }
                _ => {}
            }
        }
        Ok(stored)
    }

    /// The parameters of a model on sequences of `seq` tokens whose tensors are there under `KIND/NAME`, with what reading weights adds to
    /// them if `is_shifted`: to weights, not to gradients.
    ///
    /// # Errors
    /// The configuration cannot have such sequences.
    pub fn parameters(
        &self,
        kind: &str,
        description: &Description,
        seq: u64,
        is_shifted: bool,
    ) -> Result<Tensors, ir::models::ConfigError> {
        let names = Names::of(description, seq, &|name, _| self.floats.contains_key(&format!("{kind}/{name}")))?;
        let found = names.sources.iter().filter_map(|(name, source)| {
            let mut numbers = self.collected(kind, source)?;
            if is_shifted {
                numbers.iter_mut().for_each(|number| *number += source.shift);
            }
            Some((name.clone(), numbers))
        });
        Ok(found.collect())
    }

    /// The elements of a parameter, if all its tensors are there.
    fn collected(&self, kind: &str, source: &Source) -> Option<Vec<f32>> {
        let tensors: BTreeMap<&str, &[f32]> = source
            .pieces
            .iter()
            .map(|piece| {
                Some((piece.tensor.as_str(), self.floats.get(&format!("{kind}/{}", piece.tensor))?.as_slice()))
            })
            .collect::<Option<_>>()?;
        Some(source.collect(|name| tensors[name]))
    }
}

/// The tensors of parameters that have gradients.
pub fn trained(model: &Model, mut tensors: Tensors) -> Tensors {
    for param in model.params.values().filter(|param| param.frozen) {
        (0..param.instances()).for_each(|instance| drop(tensors.remove(&param.instance_name(instance))));
    }
    tensors
}

/// How far tensors are off: the largest norm of a difference, relative to the tensor's norm or to [`FLOOR`] of the largest one, and the
/// name of that tensor. Infinite where one is missing, or has other elements.
pub fn off_of_norm<'a>(wanted: &'a Tensors, got: impl Fn(&str) -> Option<&'a [f32]>) -> (f64, &'a str) {
    let largest = wanted.values().map(|data| norm(data.iter().map(|&x| f64::from(x)))).fold(0.0, f64::max);
    let offs = wanted.iter().map(|(name, data)| {
        let found = got(name).filter(|found| found.len() == data.len());
        let off = found.map_or(f64::INFINITY, |found| {
            let difference = norm(found.iter().zip(data).map(|(&a, &b)| f64::from(a) - f64::from(b)));
            difference / norm(data.iter().map(|&x| f64::from(x))).max(FLOOR * largest)
        });
        (if off.is_nan() { f64::INFINITY } else { off }, name.as_str())
    });
    offs.fold((0.0, ""), |worst, off| if off.0 > worst.0 { off } else { worst })
}

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|number| number * number).sum::<f64>().sqrt()
}
