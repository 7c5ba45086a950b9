//! Writing: all ranks write at once under a temporary name, then the manifest is written, then the folder is renamed. Of several
//! processes the first one does all but the ranks' files, and none goes on before all know that it went well.

use super::assign::{StatePart, assign_writers};
use super::data::{Entry, write};
use super::error::Error;
use super::folder::{of_step, partial, publish, rotate};
use super::manifest::{DataFile, Manifest, Origin, Parameter, Position, SCHEMA, Stored, StoredShard};
use super::together::{all_parts, verdict};
use crate::exec::{Executor, Platform};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
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
    let checkpoint = of_step(save.run, save.position.step);
    let folder = partial(&checkpoint);
    let first = executor.platform().is_first();
    let refused = |why: String| {
        // What was written so far helps nobody; a start of the program removes it too.
        let _ = if first { fs::remove_dir_all(&folder) } else { Ok(()) };
        Error::Unwritable { checkpoint: checkpoint.clone(), why }
    };
    let only_first =
        |work: &dyn Fn() -> io::Result<()>| if first { work().map_err(|why| why.to_string()) } else { Ok(()) };
    // Only this folder: where that of the run is gone, someone has removed it.
    let make = || fs::create_dir(&folder).or_else(|why| if folder.is_dir() { Ok(()) } else { Err(why) });
    verdict(executor, only_first(&make))?.map_err(refused)?;
    let ranks = assign_writers(&all_parts(executor)?);
    let written = write_files(executor, &ranks, &folder)?.into_iter().collect::<io::Result<Vec<_>>>();
    let mut files = verdict(executor, written.map_err(|why| why.to_string()))?.map_err(refused)?.concat();
    files.sort_by_key(|(number, _)| *number);
    let manifest = manifest(save, &ranks, files.into_iter().map(|(_, file)| file).collect());
    let finish = || manifest.write(&folder).and_then(|()| publish(&checkpoint));
    verdict(executor, only_first(&finish))?.map_err(refused)?;
    let rotated = only_first(&|| rotate(save.run, save.position.step, save.keep_last));
    match verdict(executor, rotated)? {
        Ok(_) => Ok(checkpoint),
        Err(why) => Err(Error::Unremoved { checkpoint, why }),
    }
}

/// Lets every rank of this process that has something to write do so, all at once: a file each, with its number.
fn write_files<P: Platform>(
    executor: &mut Executor<P>,
    ranks: &[Vec<StatePart>],
    folder: &Path,
) -> Result<Vec<io::Result<(usize, DataFile)>>, Error> {
    let (work, folder) = (Arc::new(numbered(ranks)), folder.to_path_buf());
    let files = executor.visit(move |rank, kept| {
        let (number, parts) = &work[rank];
        let name = format!("data-{number:04}.safetensors");
        let data: Vec<Vec<u8>> = parts.iter().map(|part| kept.stored(part.slot)).collect();
        (!parts.is_empty()).then(|| Ok((*number, write(&folder, name, &entries(parts, &data))?)))
    })?;
    Ok(files.into_iter().flatten().collect())
}

/// The number of each rank's file: ranks without one do not count.
fn numbered(ranks: &[Vec<StatePart>]) -> Vec<(usize, Vec<StatePart>)> {
    let before = |rank: usize| ranks[..rank].iter().filter(|parts| !parts.is_empty()).count();
    ranks.iter().enumerate().map(|(rank, parts)| (before(rank), parts.clone())).collect()
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

fn manifest(save: &Save<'_>, ranks: &[Vec<StatePart>], files: Vec<DataFile>) -> Manifest {
    let empty = || Parameter { tensor: Stored::default(), states: BTreeMap::new() };
    let mut parameters: BTreeMap<String, Parameter> = BTreeMap::new();
    for (file, parts) in numbered(ranks) {
        for part in parts {
            let parameter = parameters.entry(part.param).or_insert_with(empty);
            let stored = match part.state {
                None => &mut parameter.tensor,
                Some(state) => parameter.states.entry(state).or_default(),
            };
            stored.sizes = part.sizes;
            stored.shards.extend(part.shards.into_iter().map(|shard| StoredShard { shard, file }));
        }
    }
    for parameter in parameters.values_mut() {
        let stored = std::iter::once(&mut parameter.tensor).chain(parameter.states.values_mut());
        stored.for_each(|stored| stored.shards.sort_by(|a, b| a.shard.cmp(&b.shard)));
    }
    let version = env!("CARGO_PKG_VERSION").to_string();
    let (position, fixed, origin) = (save.position, save.fixed.clone(), save.origin.cloned());
    Manifest { schema: SCHEMA.to_string(), version, position, fixed, origin, files, parameters }
}
