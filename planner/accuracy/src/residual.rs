//! Errors of a stack's predictions, as its file states them.

use super::runs::OWN;
use super::score::{Prediction, Scored};
use super::summary::quantile;
use compiler::error::Error;
use cost::{Errors, Job, Measured, Residual};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// First line of the part of a stack's file that states its residual.
const STATED: &str = "# Errors on the runs of docs/accuracy.md, and these runs; `BLESS=1 cargo test --test planning accuracy` writes them.";

/// Shares of a line.
const SHARES: usize = 16;

/// The residual as the last part of a stack's file.
#[derive(Serialize)]
struct Part<'a> {
    residual: &'a Residual,
}

/// Returns the text of a stack's file with this residual as its last part, in the place of the one that it had.
///
/// # Errors
/// The residual cannot be written, which is an internal error.
pub fn stated(file: &str, residual: &Residual) -> Result<String, Error> {
    let rest = file.split(STATED).next().unwrap_or_default().trim_end();
    let part = toml::to_string(&Part { residual }).map_err(|why| Error::fault("residual", why))?;
    let lines: String = part.split_inclusive('\n').map(a_run_a_line).collect();
    Ok(format!("{rest}\n\n{STATED}\n{lines}"))
}

/// The sizes of runs with a line for each run, and their shares in lines of [`SHARES`]. Other lines stay as they are.
fn a_run_a_line(line: &str) -> String {
    if let Some(runs) = line.strip_prefix("sizes = [[") {
        return format!("sizes = [\n    [{}", runs.replace("], [", "],\n    [").replace("]]", "],\n]"));
    }
    let Some(shares) = line.strip_prefix("shares = [").and_then(|rest| rest.trim_end().strip_suffix(']')) else {
        return line.to_string();
    };
    let shares: Vec<&str> = shares.split(", ").collect();
    let lines: String = shares.chunks(SHARES).map(|some| format!("    {},\n", some.join(", "))).collect();
    format!("shares = [\n{lines}]\n")
}

/// Errors on the runs of a stack in time and memory, and what these runs are. Runs that are reported apart do not count.
pub fn residual(scored: &[Scored<'_>]) -> Residual {
    residual_of(&scored.iter().collect::<Vec<_>>())
}

/// The residual of some of the runs of a stack.
pub(super) fn residual_of(scored: &[&Scored<'_>]) -> Residual {
    let rows: Vec<&Scored<'_>> =
        scored.iter().copied().filter(|row| !row.run.apart && row.prediction.is_ok()).collect();
    Residual {
        time: errors(&rows, |row| row.ratio()),
        memory: errors(&rows, |row| row.memory_ratio()),
        measured: measured(&rows),
    }
}

/// Properties of runs by their kinds, in order, equal ones once.
fn measured(rows: &[&Scored<'_>]) -> Vec<Measured> {
    let mut kinds: BTreeMap<&[String; Job::KINDS.len()], Vec<NearRun>> = BTreeMap::new();
    for row in rows {
        let (Ok(Prediction { job, mfu, .. }), Some(ratio)) = (&row.prediction, row.ratio()) else { continue };
        kinds.entry(&job.kinds).or_default().push(NearRun { sizes: job.sizes, share: mfu * ratio });
    }
    kinds.into_iter().map(|(kinds, runs)| of_kinds(kinds.clone(), runs)).collect()
}

/// Sizes of a run, and the share of the device's peak that it reached.
struct NearRun {
    sizes: [f64; Job::SIZES.len()],
    share: f64,
}

/// Runs of one kind, those of equal sizes once with the largest share.
fn of_kinds(kinds: [String; Job::KINDS.len()], mut runs: Vec<NearRun>) -> Measured {
    runs.sort_by(|a, b| {
        let sizes = a.sizes.partial_cmp(&b.sizes).unwrap_or(Ordering::Equal);
        sizes.then(b.share.total_cmp(&a.share))
    });
    runs.dedup_by(|later, first| later.sizes == first.sizes);
    let shares = runs.iter().map(|run| ((run.share * 1e3).round() / 1e3).min(1.0)).collect();
    Measured { kinds, sizes: runs.into_iter().map(|run| run.sizes).collect(), shares }
}

/// Errors of one figure over the runs that state it.
fn errors(rows: &[&Scored<'_>], ratio: fn(&Scored<'_>) -> Option<f64>) -> Errors {
    let stated: Vec<(&str, f64)> =
        rows.iter().filter_map(|row| Some((row.run.source.as_str(), -ratio(row)?.ln()))).collect();
    let logs: Vec<f64> = stated.iter().map(|(_, log)| *log).collect();
    let sources: BTreeSet<&str> = stated.iter().map(|(source, _)| *source).filter(|source| *source != OWN).collect();
    let rounded = |share: f64| (quantile(&logs, share) * 1e3).round() / 1e3 + 0.0;
    let [low, middle, high] = [0.1, 0.5, 0.9].map(rounded);
    Errors { runs: logs.len() as u32, sources: sources.len() as u32, low, middle, high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read, score};
    use cost::Stack;
    use estimator::Estimator;

    const RUN: &str = r#"{"source":"SOURCE","model":"llama3-8b","cluster":"h100","stack":"nemo","gpus":GPUS,"seq":8192,"global_batch":64,"precision":"bf16","parallel":"tp=2,sp=true,zero=1","step_time_s":6.0,"memory_gib":50.0}"#;

    #[test]
    fn errors_name_their_runs() {
        let run = |source: &str, gpus: &str| RUN.replace("SOURCE", source).replace("GPUS", gpus);
        let runs = read(&[run("a", "8"), run("b", "16"), run("b", "32")].join("\n")).unwrap();
        let scored = score(&Estimator::new(), &runs);
        let found = residual(&scored);
        assert_eq!((found.time.runs, found.time.sources, found.memory.runs), (3, 2, 3));
        let [measured] = found.measured.as_slice() else { panic!("{found:?}") };
        assert_eq!(measured.sizes.iter().map(|sizes| sizes[1]).collect::<Vec<_>>(), [8.0, 16.0, 32.0]);
        assert_eq!(measured.kinds, ["H100 SXM 80 GB", "bf16", "dense"]);
        let logs: Vec<f64> = scored.iter().map(|row| -row.ratio().unwrap().ln()).collect();
        assert!((found.time.high - quantile(&logs, 0.9)).abs() <= 5e-4);
    }

    /// A user's requests share the conditions of the user's runs.
    #[test]
    fn own_runs_have_no_publisher() {
        let own = RUN.replace(r#""source":"SOURCE","#, "").replace("GPUS", "8");
        let runs = read(&own).unwrap();
        let found = residual(&score(&Estimator::new(), &runs));
        assert_eq!((found.time.runs, found.time.sources), (1, 0));
    }

    #[test]
    fn a_file_states_a_residual_once() {
        let file = "name = \"mine\"\nabout = \"ours\"\nfrom = \"nemo\"\n";
        let of = |runs: u32| Residual { time: Errors { runs, ..Errors::default() }, ..Residual::default() };
        let first = stated(file, &of(3)).unwrap();
        let second = stated(&first, &of(4)).unwrap();
        assert_eq!(second.matches("[residual.time]").count(), 1);
        assert_eq!(Stack::parse(&second).unwrap().residual.time.runs, 4);
    }
}
