//! Reading: files are fully verified before any tensor is loaded; then every rank reads the shards that intersect its own
//! part.

use super::assign::StatePart;
use super::data::{Reader, fault};
use super::error::{Difference, Error};
use super::folder::{find, list, run_of, step_of};
use super::manifest::{DataFile, MANIFEST, Manifest, Stored, StoredShard, cannot_be_read};
use super::shard::Shard;
use super::together::{Refusal, all_parts, verdict};
use exec::state::MASTER;
use exec::{Executor, Platform, RankState};
use ir::graph::is_record;
use ir::types::DType;
use kernels::cpu::shape::{View, copy_strided};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A checkpoint whose manifest has been read.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its folder.
    pub path: PathBuf,
    /// The manifest.
    pub manifest: Arc<Manifest>,
}

impl Checkpoint {
    /// Opens the checkpoint that a path means: its own folder, or the newest one in a run's folder.
    ///
    /// # Errors
    /// There is none, or its manifest is missing, broken or of an unknown version.
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        let found = find(path).ok().flatten();
        let path = found.ok_or_else(|| Error::Missing { path: path.to_path_buf() })?;
        let manifest = Arc::new(Manifest::read(&path)?);
        let step = manifest.position.step;
        let checkpoint = Checkpoint { path, manifest };
        match step_of(&checkpoint.path) {
            Some(named) if named != step => Err(checkpoint.damaged(MANIFEST, format!("is that of step {step}"))),
            _ => Ok(checkpoint),
        }
    }

    /// Reads all data files and compares them with their checksums, several at a time.
    ///
    /// # Errors
    /// A file is missing or is not as it was written: the first of them.
    pub fn verify(&self) -> Result<(), Error> {
        let files = &self.manifest.files;
        let next = &AtomicUsize::new(0);
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get()).min(files.len());
        let faults = thread::scope(|scope| {
            // Where the system has no more threads, this one reads all that is left.
            let more =
                (1..cores).map_while(|_| thread::Builder::new().spawn_scoped(scope, || self.faults_of_rest(next)).ok());
            let threads: Vec<_> = more.collect();
            let own = self.faults_of_rest(next);
            let others =
                threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            own.into_iter().chain(others).collect::<Vec<_>>()
        });
        match faults.into_iter().min_by(|(a, _), (b, _)| a.name.cmp(&b.name)) {
            Some((file, why)) => Err(self.damaged(&file.name, why)),
            None => Ok(()),
        }
    }

    /// Reads the data files that no other thread has begun to read, by the index of the next one. Gives the faulty ones.
    fn faults_of_rest(&self, next: &AtomicUsize) -> Vec<(&DataFile, String)> {
        let mut faults = Vec::new();
        while let Some(file) = self.manifest.files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = fault(&self.path, file).unwrap_or_else(|why| Some(cannot_be_read(&why)));
            faults.extend(found.map(|why| (file, why)));
        }
        faults
    }

    /// The newest checkpoint of the same run that is older than one at a path, and whole.
    pub fn older(path: &Path) -> Option<Checkpoint> {
        let others = list(&run_of(path)).ok()?;
        let older = others.iter().position(|(_, other)| other.file_name() == path.file_name())?;
        let mut opened = others[..older].iter().rev().filter_map(|(_, path)| Checkpoint::open(path).ok());
        opened.find(|checkpoint| checkpoint.verify().is_ok())
    }

    /// Sets all parameters and states of an executor, whose formats may be others than those of the checkpoint. Where a checkpoint has
    /// the f32 copy (`master`) of a parameter, both begin from it; where it has none, both begin from the parameter. Records of delayed scaling
    /// that it lacks stay as they are. Executors of several processes load together.
    ///
    /// # Errors
    /// They are not those of the checkpoint by name and sizes, a file cannot be read, or a rank failed earlier.
    pub fn load<P: Platform>(&self, executor: &mut Executor<P>) -> Result<(), Error> {
        let ranks = all_parts(executor)?;
        let differences = self.differences(&ranks);
        if !differences.is_empty() {
            return Err(Error::Mismatch { checkpoint: self.path.clone(), differences });
        }
        let (from, ranks) = (self.clone(), Arc::new(ranks));
        let loaded = executor.visit(move |rank, kept| from.load_rank(kept, &ranks[rank]))?;
        let own = loaded.into_iter().collect::<Result<(), Error>>();
        let all = verdict(executor, own.as_ref().copied().map_err(Refusal::of))?;
        own?;
        all.map(drop).map_err(|why| self.damaged(MANIFEST, why.to_string()))
    }

    /// Reads tensors without an executor.
    pub fn reader(&self) -> TensorReader<'_> {
        TensorReader { checkpoint: self, tensors: self.manifest.tensors(), readers: BTreeMap::new() }
    }

    /// Tensors that only one side has, or that have other sizes.
    fn differences(&self, ranks: &[Vec<StatePart>]) -> Vec<Difference> {
        let saved = self.manifest.tensors();
        let now: BTreeMap<&str, &[u64]> =
            ranks.iter().flatten().map(|part| (part.name.as_str(), part.sizes.as_slice())).collect();
        let saved: BTreeMap<&str, &[u64]> =
            saved.iter().map(|(name, state_part)| (name.as_str(), &state_part.sizes[..])).collect();
        let names: BTreeSet<&str> = saved.keys().chain(now.keys()).copied().collect();
        let mut differences = Vec::new();
        for name in names {
            let is_copy = name.strip_suffix(MASTER).is_some_and(|name| name.ends_with('.'));
            let (saved, now) = (saved.get(name), now.get(name));
            let is_optional = is_record(name) && saved.is_some() != now.is_some();
            if saved != now && !is_copy && !is_optional {
                let [saved, now] =
                    [saved, now].map(|sizes| sizes.map_or("absent".to_string(), |sizes| format!("{sizes:?}")));
                differences.push(Difference { field: name.to_string(), saved, now });
            }
        }
        differences
    }

    /// Reads a rank's parts.
    fn load_rank(&self, kept: &mut RankState<'_>, parts: &[StatePart]) -> Result<(), Error> {
        let tensors = self.manifest.tensors();
        let mut readers = BTreeMap::new();
        for part in parts.iter().filter(|part| !is_record(&part.name) || tensors.contains_key(&part.name)) {
            let mut data = vec![0.0; part.shards.iter().map(|shard| shard.elements() as usize).sum()];
            let mut rest = data.as_mut_slice();
            let copy = format!("{}.{MASTER}", part.param);
            let copied = part.state.as_ref().is_none_or(|state| state == MASTER);
            let name = match copied {
                true if tensors.contains_key(&copy) => &copy,
                true => &part.param,
                false => &part.name,
            };
            for shard in &part.shards {
                let (into, after) = rest.split_at_mut(shard.elements() as usize);
                self.read(&mut readers, name, tensors[name], shard, into)?;
                rest = after;
            }
            kept.write(part.slot, &data);
        }
        Ok(())
    }

    /// Reads the elements of a shard from all stored ones that meet it.
    fn read(
        &self,
        readers: &mut BTreeMap<usize, Reader>,
        name: &str,
        stored: &Stored,
        shard: &Shard,
        into: &mut [f32],
    ) -> Result<(), Error> {
        let mut found = 0;
        for StoredShard { shard: state_part, file } in &stored.shards {
            let Some(both) = state_part.meet(shard) else { continue };
            let reader = self.open_file(readers, *file)?;
            let first = state_part.place(&both.offset);
            let last_index: Vec<u64> = both.offset.iter().zip(&both.shape).map(|(o, s)| o + s - 1).collect();
            let count = state_part.place(&last_index) + 1 - first;
            let key = state_part.key(name, &stored.sizes);
            let data = reader.read(&key, &state_part.shape, first, count);
            let data = data.map_err(|why| self.unreadable(*file, &why))?;
            let dims: Vec<usize> = both.shape.iter().map(|&size| size as usize).collect();
            let from = View { offset: 0, strides: &state_part.strides() };
            let to = View { offset: shard.place(&both.offset), strides: &shard.strides() };
            copy_strided(&data, from, into, to, &dims);
            found += both.elements();
        }
        if found == shard.elements() {
            return Ok(());
        }
        let why = format!("has {found} of the {} elements of `{}`", shard.elements(), shard.key(name, &stored.sizes));
        Err(self.damaged(MANIFEST, why))
    }

    /// The reader of a data file.
    fn open_file<'r>(&self, readers: &'r mut BTreeMap<usize, Reader>, file: usize) -> Result<&'r mut Reader, Error> {
        Ok(match readers.entry(file) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => {
                let reader = Reader::open(&self.path, &self.manifest.files[file].name);
                free.insert(reader.map_err(|why| self.unreadable(file, &why))?)
            }
        })
    }

    fn unreadable(&self, file: usize, why: &io::Error) -> Error {
        self.damaged(&self.manifest.files[file].name, cannot_be_read(why))
    }

    fn damaged(&self, file: &str, why: String) -> Error {
        Error::Damaged { checkpoint: self.path.clone(), file: file.to_string(), why }
    }
}

/// Reads tensors of a checkpoint, box by box.
pub struct TensorReader<'a> {
    checkpoint: &'a Checkpoint,
    tensors: BTreeMap<String, &'a Stored>,
    readers: BTreeMap<usize, Reader>,
}

impl TensorReader<'_> {
    /// The sizes of a tensor: a parameter, or a state as `<param>.<state>`.
    pub fn sizes(&self, name: &str) -> Option<&Vec<u64>> {
        self.tensors.get(name).map(|stored| &stored.sizes)
    }

    /// The format in which a tensor is stored.
    ///
    /// # Errors
    /// There is no such tensor, or a file cannot be read.
    pub fn format(&mut self, name: &str) -> Result<DType, Error> {
        let stored = self.stored(name)?;
        let first = stored.shards.first().ok_or_else(|| self.absent(name))?;
        let record = &self.checkpoint.manifest.files[first.file];
        let key = first.shard.key(name, &stored.sizes);
        let reader = self.checkpoint.open_file(&mut self.readers, first.file)?;
        reader.format(&key).ok_or_else(|| self.checkpoint.damaged(&record.name, format!("has no `{key}`")))
    }

    /// The numbers of a box of a tensor.
    ///
    /// # Errors
    /// There is no such tensor, or a file cannot be read.
    pub fn read(&mut self, name: &str, shard: &Shard) -> Result<Vec<f32>, Error> {
        let stored = self.stored(name)?;
        let mut data = vec![0.0; shard.elements() as usize];
        self.checkpoint.read(&mut self.readers, name, stored, shard, &mut data)?;
        Ok(data)
    }
}

impl<'a> TensorReader<'a> {
    fn stored(&self, name: &str) -> Result<&'a Stored, Error> {
        self.tensors.get(name).copied().ok_or_else(|| self.absent(name))
    }

    fn absent(&self, name: &str) -> Error {
        self.checkpoint.damaged(MANIFEST, format!("has no `{name}`"))
    }
}
