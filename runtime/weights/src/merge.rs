//! Merging: the term of an adapter is added to the parameter that it adapts.

use crate::error::Error;
use checkpoint::{Shard, TensorReader};
use exec::state::MASTER;
use ir::graph::FACTORS;
use serde_json::Value;

/// Adapters of a checkpoint, by what it fixes.
#[derive(Clone, Copy)]
pub(crate) struct Merge {
    /// The factor of the products of A and B.
    factor: f64,
}

impl Merge {
    /// Returns the adapters of a run's fixed options; `None` if it has none.
    pub(crate) fn of(fixed: &Value) -> Option<Merge> {
        let [scale, rank] = ["/adapters/scale", "/adapters/rank"].map(|key| fixed.pointer(key).and_then(Value::as_f64));
        Some(Merge { factor: scale? / rank? })
    }

    /// Adds the term of a parameter's adapter, if it has one, to the numbers of a box of it. A has the dims of the parameter that the
    /// product sums over, first or last, and then the rank.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn add(
        self,
        reader: &mut TensorReader<'_>,
        param: &str,
        shard: &Shard,
        own: &mut [f32],
    ) -> Result<(), Error> {
        let sizes = reader.sizes(param).cloned().unwrap_or_default();
        let [a, b] = FACTORS.map(|suffix| Factor::read(reader, &format!("{param}{suffix}")));
        let (Some(a), Some(b)) = (a?, b?) else { return Ok(()) };
        let rank = b.sizes[0] as usize;
        let inputs = &a.sizes[..a.sizes.len() - 1];
        let (columns, leads) = (b.numbers.len() / rank, sizes.starts_with(inputs));
        let split = if leads { inputs.len() } else { sizes.len() - inputs.len() };
        for (at, number) in own.iter_mut().enumerate() {
            let place = coordinates(at, shard);
            let (first, second) = (flat(&place[..split], &sizes[..split]), flat(&place[split..], &sizes[split..]));
            let (row, column) = if leads { (first, second) } else { (second, first) };
            let terms =
                (0..rank).map(|k| f64::from(a.numbers[row * rank + k]) * f64::from(b.numbers[k * columns + column]));
            *number = (f64::from(*number) + self.factor * terms.sum::<f64>()) as f32;
        }
        Ok(())
    }
}

/// A factor of an adapter.
struct Factor {
    sizes: Vec<u64>,
    numbers: Vec<f32>,
}

impl Factor {
    /// Reads a factor as [`updated`] names it; `None` if the checkpoint has no such tensor.
    fn read(reader: &mut TensorReader<'_>, name: &str) -> Result<Option<Factor>, Error> {
        let name = updated(reader, name);
        let Some(sizes) = reader.sizes(&name).cloned() else { return Ok(None) };
        let whole = Shard { offset: vec![0; sizes.len()], shape: sizes.clone() };
        let numbers = reader.read(&name, &whole)?;
        Ok(Some(Factor { sizes, numbers }))
    }
}

/// Returns the name of the tensor that the optimizer updates for a parameter: its f32 copy if it has one, or the parameter.
pub(crate) fn updated(reader: &TensorReader<'_>, param: &str) -> String {
    let copy = format!("{param}.{MASTER}");
    if reader.sizes(&copy).is_some() { copy } else { param.to_string() }
}

/// The coordinates in the tensor of an element of a box.
fn coordinates(mut at: usize, shard: &Shard) -> Vec<u64> {
    let mut place = shard.offset.clone();
    for (coordinate, &size) in place.iter_mut().zip(&shard.shape).rev() {
        *coordinate += at as u64 % size;
        at /= size as usize;
    }
    place
}

fn flat(place: &[u64], sizes: &[u64]) -> usize {
    place.iter().zip(sizes).fold(0, |flat, (&at, &size)| flat * size as usize + at as usize)
}
