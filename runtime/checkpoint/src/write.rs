//! The parts that each rank writes: copies of the ranks' parts, and their places in the manifest.

use super::assign::{StatePart, assign_writers};
use super::data::{Entry, write};
use super::error::Error;
use super::folder::of_step;
use super::manifest::{DataFile, Origin, Parameter, Position, StoredShard};
use super::saver::Saver;
use super::together::all_parts;
use exec::{Executor, Platform};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Destination of a checkpoint, and its contents besides tensors.
#[derive(Clone, Debug)]
pub struct Save<'a> {
    /// The run's folder.
    pub run: &'a Path,
    /// How far the run has come.
    pub position: Position,
    /// Options that a resumed run must share.
    pub fixed: &'a Value,
    /// The model in the form of the hub.
    pub origin: Option<&'a Origin>,
    /// How many checkpoints stay, this one among them.
    pub keep_last: usize,
}

/// Saves the parameters and states of an executor as the checkpoint of its step, then removes older ones. Gives its path. Executors of
/// several processes save together, in a folder that all of them reach.
///
/// # Errors
/// The system refuses, when all checkpoints are as before or only older ones are left; or a rank failed earlier.
pub fn save<P: Platform>(executor: &mut Executor<P>, save: &Save<'_>) -> Result<PathBuf, Error> {
    let mut saver = Saver::default();
    saver.begin(executor, save, None)?;
    let checkpoint = saver.finish(executor)?;
    Ok(checkpoint.unwrap_or_else(|| of_step(save.run, save.position.step)))
}

/// A copy of the parts that a rank writes.
pub(super) struct RankCopy {
    /// The number of its file.
    number: usize,
    parts: Vec<StatePart>,
    /// The elements of each part, as they are stored.
    data: Vec<Vec<u8>>,
}

impl RankCopy {
    /// Copies the parts of every rank of this process that has something to write, all at once.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn all<P: Platform>(executor: &mut Executor<P>, ranks: &Arc<Writers>) -> Result<Vec<RankCopy>, Error> {
        let work = ranks.clone();
        let copies = executor.visit(move |rank, state| {
            let (number, parts) = &work[rank];
            (!parts.is_empty()).then(|| RankCopy {
                number: *number,
                parts: parts.clone(),
                data: parts.iter().map(|part| state.stored(part.slot)).collect(),
            })
        })?;
        Ok(copies.into_iter().flatten().collect())
    }

    /// Writes them as a file, and gives its number too.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn write(&self, folder: &Path) -> io::Result<(usize, DataFile)> {
        let name = format!("data-{:04}.safetensors", self.number);
        Ok((self.number, write(folder, name, &entries(&self.parts, &self.data))?))
    }
}

/// The number of each rank's file, and the parts that the rank writes.
pub(super) type Writers = Vec<(usize, Vec<StatePart>)>;

/// The work of all ranks.
///
/// # Errors
/// A rank failed.
pub(super) fn writers<P: Platform>(executor: &mut Executor<P>) -> Result<Arc<Writers>, Error> {
    Ok(Arc::new(numbered(&assign_writers(&all_parts(executor)?))))
}

/// The number of each rank's file: ranks without one do not count.
fn numbered(ranks: &[Vec<StatePart>]) -> Writers {
    let (mut writers, mut number) = (Writers::new(), 0);
    for parts in ranks {
        writers.push((number, parts.clone()));
        number += usize::from(!parts.is_empty());
    }
    writers
}

/// The shards of a rank's parts with their pieces of the elements.
fn entries<'a>(parts: &'a [StatePart], data: &'a [Vec<u8>]) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (part, data) in parts.iter().zip(data) {
        let mut rest = data.as_slice();
        for shard in &part.shards {
            let (data, after) = rest.split_at((shard.elements() * part.dtype.bytes()) as usize);
            let key = shard.key(&part.name, &part.sizes);
            entries.push(Entry { key, shape: &shard.shape, dtype: part.dtype, data });
            rest = after;
        }
    }
    entries
}

/// The parameters of a manifest.
pub(super) fn parameters(writers: &Writers) -> BTreeMap<String, Parameter> {
    let mut parameters: BTreeMap<String, Parameter> = BTreeMap::new();
    for (file, parts) in writers {
        for part in parts {
            let parameter = parameters.entry(part.param.clone()).or_default();
            let stored = match &part.state {
                None => &mut parameter.tensor,
                Some(state) => parameter.states.entry(state.clone()).or_default(),
            };
            stored.sizes.clone_from(&part.sizes);
            stored.shards.extend(part.shards.iter().map(|shard| StoredShard { shard: shard.clone(), file: *file }));
        }
    }
    for parameter in parameters.values_mut() {
        let stored = std::iter::once(&mut parameter.tensor).chain(parameter.states.values_mut());
        stored.for_each(|stored| stored.shards.sort_by(|a, b| a.shard.cmp(&b.shard)));
    }
    parameters
}
