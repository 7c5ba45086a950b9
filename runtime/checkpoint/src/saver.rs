//! Saving while a run goes on. All ranks copy their parts of the state at once. Then a thread of each process writes the copies under a
//! temporary name. When those of all processes have, a thread of the first one writes the manifest and renames the folder. Between the
//! stages the processes agree that all went well.

use super::error::Error;
use super::folder::{of_step, publish, rotate, unfinished};
use super::manifest::{DataFile, Manifest, SCHEMA};
use super::task::Task;
use super::together::{Refusal, verdict};
use super::write::{RankCopy, Save, Writers, parameters, writers};
use exec::{Executor, Platform};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The checkpoints of an executor. At most one is under way. Executors of several processes call the same in the same order.
#[derive(Default)]
pub struct Saver {
    /// The work of all ranks, which is the same for all checkpoints.
    writers: Option<Arc<Writers>>,
    under_way: Option<UnderWay>,
}

/// A checkpoint that is being written.
struct UnderWay {
    checkpoint: PathBuf,
    /// The folder in which it is written.
    folder: PathBuf,
    run: PathBuf,
    keep_last: usize,
    /// The manifest, which lacks its files and parameters yet.
    manifest: Manifest,
    before: Option<Before>,
    stage: Stage,
}

/// Work of the first process before a checkpoint gets its name, which an error of it prevents.
pub type Before = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The work of this process for the checkpoint under way.
enum Stage {
    /// Its ranks' files, with their numbers.
    Files(Begun<Vec<(usize, DataFile)>>),
    /// Manifest and rename; in the first process alone. Gives why older checkpoints stay, if they do.
    Publication(Option<Begun<Option<String>>>),
}

/// A task, unless the system has no thread for it.
type Begun<T> = io::Result<Task<io::Result<T>>>;

impl Saver {
    /// Begins to save: copies the state, which the next step may change.
    ///
    /// # Errors
    /// The system refuses, or a rank failed earlier.
    ///
    /// # Panics
    /// If a checkpoint is under way.
    pub fn begin<P: Platform>(
        &mut self,
        executor: &mut Executor<P>,
        save: &Save<'_>,
        before: Option<Before>,
    ) -> Result<(), Error> {
        assert!(self.under_way.is_none(), "one checkpoint at a time");
        let checkpoint = of_step(save.run, save.position.step);
        let made = executor.platform().is_first().then(|| make(&checkpoint)).transpose();
        let names = verdict(executor, made.map_err(|why| Refusal::of(&why)))?
            .map_err(|why| Error::Unwritable { checkpoint: checkpoint.clone(), why: why.to_string() })?;
        let name = names.into_iter().flatten().next().unwrap_or_default();
        let folder = save.run.join(name);
        let writers = match self.writers.take() {
            Some(writers) => writers,
            None => writers(executor)?,
        };
        self.writers = Some(writers.clone());
        let (copies, into) = (RankCopy::all(executor, &writers)?, folder.clone());
        let task = Task::begin("save", move || copies.iter().map(|copy| copy.write(&into)).collect());
        self.under_way = Some(UnderWay {
            checkpoint,
            folder,
            run: save.run.to_path_buf(),
            keep_last: save.keep_last,
            manifest: Manifest {
                schema: SCHEMA.to_string(),
                version: env!("CARGO_PKG_VERSION").to_string(),
                position: save.position,
                fixed: save.fixed.clone(),
                origin: save.origin.cloned(),
                files: Vec::new(),
                parameters: BTreeMap::new(),
            },
            before,
            stage: Stage::Files(task),
        });
        Ok(())
    }

    /// The step of the checkpoint under way.
    pub fn step(&self) -> Option<u64> {
        self.under_way.as_ref().map(|under_way| under_way.manifest.position.step)
    }

    /// True while this process works on a stage of the checkpoint under way.
    pub fn is_busy(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| match &under_way.stage {
            Stage::Files(begun) => is_busy(begun),
            Stage::Publication(begun) => begun.as_ref().is_some_and(is_busy),
        })
    }

    /// Goes on to the next stage of the checkpoint under way; it waits for processes that are busy. Gives the checkpoint when it is there.
    ///
    /// # Errors
    /// The system refuses, when all checkpoints are as before or only older ones are left; or a rank failed earlier.
    pub fn advance<P: Platform>(&mut self, executor: &mut Executor<P>) -> Result<Option<PathBuf>, Error> {
        let Some(UnderWay { checkpoint, folder, run, keep_last, manifest, before, stage }) = self.under_way.take()
        else {
            return Ok(None);
        };
        let is_first = executor.platform().is_first();
        match stage {
            Stage::Files(begun) => {
                let files = verdict(executor, outcome(begun))?;
                let mut files = files.map_err(|why| refused(&checkpoint, &folder, is_first, &why))?.concat();
                files.sort_by_key(|(number, _)| *number);
                let files = files.into_iter().map(|(_, file)| file).collect();
                let parameters = self.writers.as_deref().map(parameters).unwrap_or_default();
                let publication = Publication {
                    folder: folder.clone(),
                    checkpoint: checkpoint.clone(),
                    run: run.clone(),
                    keep_last,
                    manifest: Manifest { files, parameters, ..manifest.clone() },
                    before,
                };
                let task = is_first.then(|| Task::begin("publish", || publication.publish()));
                let stage = Stage::Publication(task);
                self.under_way = Some(UnderWay { checkpoint, folder, run, keep_last, manifest, before: None, stage });
                Ok(None)
            }
            Stage::Publication(begun) => {
                let own = begun.map_or(Ok(None), outcome);
                let unremoved = verdict(executor, own)?.map_err(|why| refused(&checkpoint, &folder, is_first, &why))?;
                match unremoved.into_iter().flatten().next() {
                    Some(why) => Err(Error::Unremoved { checkpoint, why }),
                    None => Ok(Some(checkpoint)),
                }
            }
        }
    }

    /// Waits for the checkpoint under way, and gives it.
    ///
    /// # Errors
    /// As of [`advance`](Saver::advance).
    pub fn finish<P: Platform>(&mut self, executor: &mut Executor<P>) -> Result<Option<PathBuf>, Error> {
        while self.under_way.is_some() {
            if let Some(checkpoint) = self.advance(executor)? {
                return Ok(Some(checkpoint));
            }
        }
        Ok(None)
    }
}

fn is_busy<T>(begun: &Begun<T>) -> bool {
    begun.as_ref().is_ok_and(|task| !task.is_done())
}

/// Waits for a task, and gives what came of it.
fn outcome<T>(begun: Begun<T>) -> Result<T, Refusal> {
    let ended = begun.and_then(|task| task.wait().unwrap_or_else(|| Err(io::Error::other("its thread panicked"))));
    ended.map_err(|why| Refusal::of(&why))
}

/// Makes a folder to write a checkpoint in, and gives its name. It does not make that of the run: where it is gone, someone has removed
/// it.
fn make(checkpoint: &Path) -> io::Result<String> {
    let folder = unfinished(checkpoint);
    fs::create_dir(&folder)?;
    Ok(folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
}

/// A checkpoint whose files are written.
struct Publication {
    folder: PathBuf,
    checkpoint: PathBuf,
    run: PathBuf,
    keep_last: usize,
    manifest: Manifest,
    before: Option<Before>,
}

impl Publication {
    /// Writes the manifest, gives the checkpoint its name, and removes older ones. Gives why they stay, if they do.
    fn publish(self) -> io::Result<Option<String>> {
        self.manifest.write(&self.folder)?;
        self.before.map_or(Ok(()), |before| before())?;
        publish(&self.folder, &self.checkpoint)?;
        let removed = rotate(&self.run, self.manifest.position.step, self.keep_last);
        Ok(removed.err().map(|why| why.to_string()))
    }
}

/// The refusal of a process. The first one removes what is there, which helps nobody.
fn refused(checkpoint: &Path, folder: &Path, is_first: bool, why: &Refusal) -> Error {
    // A start of the program removes it too.
    let _ = if is_first { fs::remove_dir_all(folder) } else { Ok(()) };
    Error::Unwritable { checkpoint: checkpoint.to_path_buf(), why: why.to_string() }
}
