//! The built binary as a process with limits, and checks of its end.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use wait4::Wait4;

/// Seconds within which every request is answered on an idle machine of [`CORES`] cores.
const SECONDS: u64 = 20;
/// Cores whose time [`SECONDS`] are.
const CORES: u64 = 2;
/// How much longer a build without full optimisation takes.
const SLOWER: u64 = if cfg!(debug_assertions) { 4 } else { 1 };
/// Seconds that a process may wait, for a busy machine gives it little time.
const PATIENCE: u64 = 6 * SECONDS * SLOWER;
/// Bytes of memory that a request may take.
const MEMORY: u64 = 2 << 30;
/// Kibibytes of addresses: a request without a bound ends by itself.
const ADDRESSES: u64 = 2 << 20;

/// A folder that is removed when it is dropped, unless it is retained.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder below the build's own.
    pub(crate) fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves it for a reader.
    pub(crate) fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// How a process ended.
pub(crate) struct Ended {
    status: ExitStatus,
    /// All that it printed.
    pub(crate) stdout: String,
    /// Its messages.
    pub(crate) stderr: String,
    peak: u64,
    cpu: Duration,
    wall: Duration,
    is_interrupted: bool,
}

/// The binary with the arguments in the folder, under limits of time and memory.
pub(crate) fn run(folder: &Path, args: &[String]) -> Ended {
    start(folder, args, &[]).end()
}

/// A process that has not been waited for.
pub(crate) struct Started {
    child: Child,
    folder: PathBuf,
    began: Instant,
    may_be_long: bool,
}

/// Starts what [`run`] runs, with variables of the environment.
pub(crate) fn start(folder: &Path, args: &[String], env: &[(&str, String)]) -> Started {
    let out = |name: &str| File::create(folder.join(name)).unwrap();
    let may_be_long = args.first().is_some_and(|verb| verb == "train");
    let settings: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let child = Command::new("sh")
        .args(["-c", &limits(may_be_long)])
        .arg("env")
        .args(settings)
        .arg(env!("CARGO_BIN_EXE_meshwright"))
        .args(args)
        .current_dir(folder)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .stdout(out(STDOUT))
        .stderr(out(STDERR))
        .spawn()
        .unwrap();
    Started { child, folder: folder.into(), began: Instant::now(), may_be_long }
}

/// Starts one of two processes of a run, as by hand, in a folder of its own below `folder`.
pub(crate) fn start_rank(folder: &Path, number: usize, args: &[String], port: u16, secret: Option<&str>) -> Started {
    let number = number.to_string();
    let place = [("RANK", number.as_str()), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")];
    let mut env: Vec<_> = place.iter().map(|(name, value)| (*name, value.to_string())).collect();
    env.push(("MASTER_PORT", port.to_string()));
    env.extend(secret.map(|secret| ("MESHWRIGHT_SECRET", secret.to_string())));
    let own = folder.join(number);
    fs::create_dir(&own).unwrap();
    start(&own, args, &env)
}

impl Started {
    /// Sends a signal to the process, by the signal's name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end. A training run may be as long as it likes, if it ends when it is interrupted.
    pub(crate) fn end(self) -> Ended {
        let interrupt = (Duration::from_secs(SECONDS * SLOWER), "INT");
        let kill = (Duration::from_secs(PATIENCE), "KILL");
        let alarms = if self.may_be_long { vec![interrupt, kill] } else { vec![kill] };
        let (ended, end) = mpsc::channel::<()>();
        let process = self.child.id();
        let watch = thread::spawn(move || {
            let late = |&(after, name): &(Duration, &str)| {
                let is_late = end.recv_timeout(after) == Err(RecvTimeoutError::Timeout);
                if is_late {
                    signal(process, name);
                }
                is_late
            };
            alarms.iter().take_while(|&alarm| late(alarm)).count()
        });
        let used = self.child.wait4().unwrap();
        drop(ended);
        let is_interrupted = watch.join().unwrap() > 0 && self.may_be_long;
        let text = |name: &str| String::from_utf8_lossy(&fs::read(self.folder.join(name)).unwrap()).into_owned();
        Ended {
            status: used.status,
            stdout: text(STDOUT),
            stderr: text(STDERR),
            peak: used.rusage.maxrss,
            cpu: used.rusage.utime + used.rusage.stime,
            wall: self.began.elapsed(),
            is_interrupted,
        }
    }
}

/// Shell script that runs a command under limits.
fn limits(may_be_long: bool) -> String {
    let cpu = if may_be_long { String::new() } else { format!("ulimit -t {}; ", CORES * SECONDS * SLOWER) };
    format!("ulimit -v {ADDRESSES}; {cpu}exec \"$0\" \"$@\"")
}

/// Sends a signal by its name.
fn signal(process: u32, name: &str) {
    drop(Command::new("kill").args(["-s", name, &process.to_string()]).stderr(Stdio::null()).status());
}

/// Exit status of a run that was interrupted.
const INTERRUPTED: i32 = 130;
const STDOUT: &str = ".stdout";
const STDERR: &str = ".stderr";

impl Ended {
    /// The exit status, if no signal ended it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// How long it ran.
    pub(crate) fn wall(&self) -> Duration {
        self.wall
    }

    /// True if it did not end before it was interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// True if it ended by the signal, or with the exit status of the signal.
    pub(crate) fn ended_by(&self, number: i32) -> bool {
        self.status.signal() == Some(number) || self.code() == Some(128 + number)
    }

    /// True if a promise is broken: a panic, an internal fault, a hang, too much memory, a message without a code, an
    /// answer that is not a number.
    pub(crate) fn judged(&self) -> Result<(), String> {
        let broken = |what: String| Err(format!("{what}\n{}", first_lines(&self.stderr)));
        if self.stderr.contains("panicked at") {
            return broken("it panics".into());
        }
        if self.peak > MEMORY {
            return broken(format!("it took {} MiB", self.peak >> 20));
        }
        match (self.code(), self.status.signal()) {
            (Some(INTERRUPTED), _) | (None, Some(2)) if self.is_interrupted => Ok(()),
            (None, Some(9)) => broken(format!("no end after {:.0?} ({:.0?} of CPU)", self.wall, self.cpu)),
            (None, Some(24)) => broken(format!("no end after {:.0?} of CPU", self.cpu)),
            (None, signal) => broken(format!("it ends with signal {}", signal.unwrap_or(0))),
            (Some(0), _) if !self.is_numbers() => broken("its answer has NaN or infinity".into()),
            (Some(0), _) => Ok(()),
            (Some(1 | 2 | 5 | 6), _) if self.has_code() => Ok(()),
            (Some(4), _) if self.has_code() || !self.stdout.is_empty() => Ok(()),
            (Some(3), _) => broken("it takes the input for an internal fault".into()),
            (Some(code), _) => broken(format!("exit status {code} without a message that has a code")),
        }
    }

    fn has_code(&self) -> bool {
        self.stderr.contains("error[MW")
    }

    /// True if all numbers of the answer are. The line of unknown keys has names of the input, such as `inf`.
    fn is_numbers(&self) -> bool {
        let lines = self.stdout.lines().filter(|line| !line.starts_with("unknown "));
        let mut words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || ",:=()".contains(c)));
        words.by_ref().take(WORDS).all(|word| !matches!(word, "NaN" | "inf" | "-inf"))
    }
}

/// Words of an answer that are looked at.
const WORDS: usize = 1_000_000;

fn first_lines(text: &str) -> String {
    text.lines().take(6).map(|line| line.chars().take(300).collect::<String>() + "\n").collect()
}
