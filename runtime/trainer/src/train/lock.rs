//! Lock file: one training run at a time in a folder.

use super::outputs::at_start;
use crate::error::Error;
use ir::catalogue::Code;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use support::files;

/// Name of the lock file, which has the process id of its owner, and a word that no other run has.
const NAME: &str = "run.lock";

/// No lock file is larger: it has two numbers.
#[cfg(unix)]
const MOST_BYTES: u64 = 1 << 12;

/// Keeps other runs out of a folder until it is dropped. The system releases the lock when the process ends for any
/// reason. The file of a killed run therefore blocks no other run.
pub(super) struct Lock {
    _held: File,
    fence: Fence,
    /// The folder and those around it that this run has made, innermost first.
    made: Vec<PathBuf>,
}

impl Lock {
    /// Creates the folder if it is missing, and locks it.
    ///
    /// # Errors
    /// Another run has the lock, or the folder cannot be created or locked.
    pub(super) fn take(out: &Path) -> Result<Lock, Error> {
        let made = out.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let made = made.map(Path::to_path_buf).collect();
        fs::create_dir_all(out).map_err(|why| at_start("create", out, &why))?;
        let path = out.join(NAME);
        let mut file = files::edit(&path).map_err(|why| at_start("lock", &path, &why))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(out, &mut file)),
            // Some file systems have no locks; the run then goes on without one.
            Err(TryLockError::Error(why)) if why.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(why)) => return Err(at_start("lock", &path, &why)),
        }
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let fence = Fence { text: format!("{} {nanos:x}\n", std::process::id()), path };
        fence.raise(&mut file).map_err(|why| at_start("lock", &fence.path, &why))?;
        Ok(Lock { _held: file, fence, made })
    }

    /// The fence that keeps this run from writing when another one has taken the folder.
    pub(super) fn fence(&self) -> Fence {
        self.fence.clone()
    }
}

/// The text of the lock file of a run. A process that was suspended, and wakes up when the run has been started again elsewhere, finds
/// another one.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    path: PathBuf,
    text: String,
}

impl Fence {
    fn raise(&self, file: &mut File) -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(self.text.as_bytes())
    }

    /// Checks that the folder is still this run's.
    ///
    /// # Errors
    /// Another run has taken it, or the lock file cannot be read.
    #[cfg(unix)]
    pub(super) fn check(&self) -> io::Result<()> {
        match files::read(&self.path, MOST_BYTES).map(|text| String::from_utf8_lossy(&text).into_owned()) {
            Ok(text) if text != self.text => {
                let whose = text.split_whitespace().next().unwrap_or("another");
                Err(io::Error::other(format!("process {whose} has started the run again in this folder")))
            }
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(()),
        }
    }

    /// Nothing: a file that is locked cannot be read, and no other run has the lock.
    #[cfg(not(unix))]
    pub(super) fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A run that ends before it has written anything leaves no folder that it has made.
impl Drop for Lock {
    fn drop(&mut self) {
        let Some(out) = self.made.first() else { return };
        let is_unused = fs::read_dir(out)
            .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == NAME)));
        if is_unused {
            // Nobody could handle a failure: a folder that stays has no results.
            let _ = fs::remove_file(out.join(NAME)).and_then(|()| self.made.iter().try_for_each(fs::remove_dir));
        }
    }
}

fn taken(out: &Path, file: &mut File) -> Error {
    let mut process = String::new();
    // Some systems do not let others read a locked file.
    let owner = match file.read_to_string(&mut process) {
        Ok(_) => process.split_whitespace().next().map(|process| format!("process {process}")),
        Err(_) => None,
    };
    let whose = owner.unwrap_or_else(|| "another process".to_string());
    Error::input(Code::RunInUse, format!("{whose} is training in {}", out.display()))
        .help("wait until it ends, or choose another --out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_runs_until_it_ends() {
        let out = std::env::temp_dir().join(format!("meshwright-lock-{}", std::process::id()));
        let first = Lock::take(&out).unwrap();
        let told = Lock::take(&out).map(drop).unwrap_err();
        assert_eq!(told.code(), Some(Code::RunInUse));
        assert!(matches!(told, Error::Request(_)), "{told}");
        assert!(told.to_string().contains(&format!("process {}", std::process::id())), "{told}");
        drop(first);
        assert!(!out.exists(), "a run without results leaves no folder");
        // A killed run leaves a process id, but no lock.
        fs::create_dir(&out).unwrap();
        fs::write(out.join(NAME), "4194305, and more than a number is long\n").unwrap();
        drop(Lock::take(&out).unwrap());
        let own = format!("{} ", std::process::id());
        assert!(fs::read_to_string(out.join(NAME)).unwrap().starts_with(&own));
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn a_run_without_results_leaves_no_folder_around_its_own() {
        let outer = std::env::temp_dir().join(format!("meshwright-nested-{}", std::process::id()));
        let [first, second] = ["a/b", "c"].map(|name| outer.join(name));
        drop(Lock::take(&first).unwrap());
        assert!(!outer.exists());
        let stays = Lock::take(&second).unwrap();
        drop(Lock::take(&first).unwrap());
        assert!(second.exists() && !outer.join("a").exists());
        drop(stays);
        assert!(!outer.exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_run_whose_folder_is_taken_may_not_write() {
        let out = std::env::temp_dir().join(format!("meshwright-fence-{}", std::process::id()));
        let first = Lock::take(&out).unwrap();
        assert!(first.fence().check().is_ok());
        // Who knows that the other one is suspended takes its lock away.
        fs::remove_file(out.join(NAME)).unwrap();
        let second = Lock::take(&out).unwrap();
        let why = first.fence().check().unwrap_err().to_string();
        assert!(second.fence().check().is_ok() && why.contains("has started the run again"), "{why}");
        fs::remove_dir_all(&out).unwrap();
    }
}
