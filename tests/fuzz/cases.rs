//! The cases of a fuzzer: each is a number. They run on all cores, and failures are saved.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Failures that the message of a fuzzer shows.
const FAILURES_SHOWN: usize = 8;

/// The cases to run: `MESHWRIGHT_FIRST`, and `MESHWRIGHT_CASES` of them or as many as `MESHWRIGHT_SECONDS` have room for.
pub(crate) struct Cases {
    first: u64,
    count: u64,
    until: Option<Instant>,
}

/// A case that did not end as it must, and why.
pub(crate) struct Failure {
    /// The reason.
    pub(crate) why: String,
    /// The folder that shows it, if the case has files.
    pub(crate) folder: Option<PathBuf>,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, folder: None }
    }
}

impl Cases {
    /// As the environment asks, else `default` cases.
    pub(crate) fn asked(default: u64) -> Cases {
        let seconds = number("MESHWRIGHT_SECONDS");
        let count = number("MESHWRIGHT_CASES").unwrap_or(if seconds.is_some() { u64::MAX } else { default });
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Cases { first: number("MESHWRIGHT_FIRST").unwrap_or(0), count, until }
    }

    /// Runs the cases on `threads` threads; a case answers with a word for the table, or with its failure.
    ///
    /// # Panics
    /// A case failed: the message has the first failures and how to run one again.
    pub(crate) fn run(&self, name: &str, threads: usize, case: impl Fn(u64) -> Result<String, Failure> + Sync) {
        let next = AtomicU64::new(0);
        let tally: Mutex<BTreeMap<String, u64>> = Mutex::default();
        let failures: Mutex<BTreeMap<u64, Failure>> = Mutex::default();
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= self.count || self.until.is_some_and(|until| Instant::now() >= until) {
                    return;
                }
                match case(self.first + at) {
                    Ok(word) => *tally.lock().unwrap().entry(word).or_default() += 1,
                    Err(failure) => drop(failures.lock().unwrap().insert(self.first + at, failure)),
                }
            }
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        report(name, &tally.into_inner().unwrap(), &failures.into_inner().unwrap());
    }
}

fn report(name: &str, tally: &BTreeMap<String, u64>, failures: &BTreeMap<u64, Failure>) {
    let run = tally.values().sum::<u64>() + failures.len() as u64;
    println!("{name}: {run} cases, {} failed", failures.len());
    for (word, count) in tally {
        println!("  {count:>7}  {word}");
    }
    let mut text = String::new();
    for (case, failure) in failures.iter().take(FAILURES_SHOWN) {
        writeln!(text, "\ncase {case}: {}", failure.why).unwrap();
        if let Some(folder) = &failure.folder {
            writeln!(text, "its files: {}", folder.display()).unwrap();
        }
        writeln!(text, "again: MESHWRIGHT_FIRST={case} MESHWRIGHT_CASES=1 cargo test --test fuzz {name}").unwrap();
    }
    assert!(failures.is_empty(), "{} of {run} cases failed\n{text}", failures.len());
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
