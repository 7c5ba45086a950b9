//! Checkpoint folders of a run: their location, the atomic publication of a new one, and the removal of old ones.
//!
//! A checkpoint is `step-00000120` in the run's folder. It is written under a name that ends in `.partial` and that no other process
//! has, and renamed when all of it is on the disk. A checkpoint to be removed is renamed first. A folder without that ending is therefore complete,
//! whenever the process was killed.

use super::manifest::MANIFEST;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How the names of checkpoints begin.
const STEP: &str = "step-";

/// How the names of what is being written or deleted end.
const PARTIAL: &str = ".partial";

/// The checkpoint of a step.
pub(super) fn of_step(run: &Path, step: u64) -> PathBuf {
    run.join(format!("{STEP}{step:08}"))
}

/// The name under which a checkpoint is written or deleted.
pub(super) fn partial(checkpoint: &Path) -> PathBuf {
    let mut name = checkpoint.as_os_str().to_os_string();
    name.push(PARTIAL);
    name.into()
}

/// A name for a checkpoint while this process writes it. A process of an earlier start that wakes up has another one.
pub(super) fn unfinished(checkpoint: &Path) -> PathBuf {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut name = checkpoint.as_os_str().to_os_string();
    name.push(format!(".{}-{nanos:x}{PARTIAL}", std::process::id()));
    name.into()
}

/// The checkpoints of a run with their steps, oldest first; none where there is no such folder.
///
/// # Errors
/// The folder cannot be read.
pub fn list(run: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(run) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let step = step_of(&path).filter(|_| path.is_dir());
        found.extend(step.map(|step| (step, path)));
    }
    found.sort();
    Ok(found)
}

/// True if a path is that of a checkpoint, as against that of a run.
fn is_checkpoint(path: &Path) -> bool {
    step_of(path).is_some() || path.join(MANIFEST).exists()
}

/// The run's folder of a path: for a checkpoint its parent, else the path itself.
pub fn run_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if is_checkpoint(path) && parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) if is_checkpoint(path) => parent.to_path_buf(),
        _ => path.to_path_buf(),
    }
}

/// The checkpoint that a path means: itself, or the newest one of the run.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn find(path: &Path) -> io::Result<Option<PathBuf>> {
    if is_checkpoint(path) {
        return Ok(path.is_dir().then(|| path.to_path_buf()));
    }
    Ok(list(path)?.pop().map(|(_, newest)| newest))
}

/// Removes what a killed process left half written or half deleted. A file of such a name is none of ours.
///
/// # Errors
/// The system refuses.
pub fn clean(run: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(run) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(STEP) && name.ends_with(PARTIAL) && !fs::symlink_metadata(&path)?.is_file() {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Gives a checkpoint that is written under another name the name of its own, in the place of an older one if need be.
///
/// # Errors
/// The system refuses.
pub(super) fn publish(partial: &Path, checkpoint: &Path) -> io::Result<()> {
    let run = run_of(checkpoint);
    sync(partial)?;
    if checkpoint.is_file() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file has its name"));
    }
    if checkpoint.exists() {
        let old = checkpoint.with_extension(format!("old{PARTIAL}"));
        fs::rename(checkpoint, &old)?;
        fs::rename(partial, checkpoint)?;
        sync(&run)?;
        return fs::remove_dir_all(old);
    }
    fs::rename(partial, checkpoint)?;
    sync(&run)
}

/// Keeps the last `keep_last` checkpoints up to a step, and no later ones: those are of a past that the run did not have.
///
/// # Errors
/// The system refuses.
pub(super) fn rotate(run: &Path, step: u64, keep_last: usize) -> io::Result<()> {
    let later = list(run)?.into_iter().filter(|(other, _)| *other > step).map(|(_, path)| path);
    remove(older(run, step, keep_last)?.into_iter().chain(later))?;
    sync(run)
}

/// Removes the checkpoints before the last `keep_last` up to a step, as a run does that is killed before it has done so.
///
/// # Errors
/// The system refuses.
pub fn prune(run: &Path, step: u64, keep_last: usize) -> io::Result<()> {
    remove(older(run, step, keep_last)?)
}

/// The checkpoints before the last `keep_last` up to a step.
fn older(run: &Path, step: u64, keep_last: usize) -> io::Result<Vec<PathBuf>> {
    let mut older = list(run)?;
    older.retain(|(other, _)| *other <= step);
    older.truncate(older.len().saturating_sub(keep_last));
    Ok(older.into_iter().map(|(_, path)| path).collect())
}

fn remove(checkpoints: impl IntoIterator<Item = PathBuf>) -> io::Result<()> {
    for path in checkpoints {
        let partial = partial(&path);
        fs::rename(&path, &partial)?;
        fs::remove_dir_all(&partial)?;
    }
    Ok(())
}

/// Sees that the names in a folder are on the disk. Only Unix opens folders for that.
fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The step in the name of a checkpoint.
pub(super) fn step_of(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix(STEP)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::super::testing::Folder;
    use super::*;

    fn make(path: &Path, content: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("x"), content).unwrap();
    }

    fn steps(run: &Path) -> Vec<u64> {
        list(run).unwrap().into_iter().map(|(step, _)| step).collect()
    }

    #[test]
    fn the_last_ones_stay_and_what_was_dropped_goes() {
        let run = Folder::new("rotate");
        assert_eq!((steps(&run.0.join("none")), find(&run.0).unwrap()), (vec![], None));
        for step in [8, 10, 9, 123_456_789, 7] {
            make(&of_step(&run.0, step), "");
        }
        make(&run.0.join("step-x"), "");
        assert_eq!(steps(&run.0), [7, 8, 9, 10, 123_456_789]);
        prune(&run.0, 9, 2).unwrap();
        assert_eq!(steps(&run.0), [8, 9, 10, 123_456_789]);
        rotate(&run.0, 10, 3).unwrap();
        assert_eq!(steps(&run.0), [8, 9, 10]);
        rotate(&run.0, 9, 1).unwrap();
        assert_eq!(steps(&run.0), [9]);
        assert!(run.0.join("step-x").exists());
        assert_eq!(find(&run.0).unwrap(), Some(of_step(&run.0, 9)));
        assert_eq!(run_of(&of_step(&run.0, 9)), run.0);
        assert_eq!(run_of(Path::new("step-3")), Path::new("."));
    }

    #[test]
    fn a_checkpoint_is_whole_or_not_there() {
        let run = Folder::new("publish");
        let path = of_step(&run.0, 5);
        for content in ["old", "new"] {
            make(&partial(&path), content);
            publish(&partial(&path), &path).unwrap();
            assert_eq!(fs::read_to_string(path.join("x")).unwrap(), content);
        }
        make(&partial(&of_step(&run.0, 6)), "half");
        make(&path.with_extension("old.partial"), "half");
        let files = ["step-3.partial", "step-00000007"].map(|name| run.0.join(name));
        files.iter().for_each(|file| fs::write(file, "of the user").unwrap());
        assert_eq!(steps(&run.0), [5]);
        clean(&run.0).unwrap();
        assert_eq!(fs::read_dir(&run.0).unwrap().count(), 3);
        assert!(files.iter().all(|file| file.is_file()));
    }
}
