//! Output files of a training run besides checkpoints, `run.toml` and `metrics.jsonl`, and errors in writing them.

use super::checkpoint::is_in;
use super::request::TrainRequest;
use crate::error::Error;
use crate::metrics::{Header, MetricsWriter};
use checkpoint::{Checkpoint, clean, list, prune};
use ir::catalogue::Code;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use support::files;
use support::shell::quoted;

/// The file of a run's options.
const RUN: &str = "run.toml";

/// Writes `run.toml` into the output folder and opens `metrics.jsonl`, after the records up to the resumed step.
///
/// # Errors
/// A file cannot be written.
pub(super) fn outputs(request: &TrainRequest, params: u64, from: Option<&Checkpoint>) -> Result<MetricsWriter, Error> {
    let out = &request.out;
    let from = from.filter(|from| is_in(from, out)).map(|from| from.manifest.position.step);
    let keep_last = usize::try_from(request.keep_last).unwrap_or(usize::MAX);
    let cleaned = clean(out).and_then(|()| from.map_or(Ok(()), |step| prune(out, step, keep_last)));
    cleaned.map_err(|why| at_start("clear", out, &why))?;
    let config = toml::to_string(request).map_err(|why| Error::input(Code::BadOption, format!("run.toml: {why}")))?;
    let config_hash = format!("{:016x}", fnv1a(config.as_bytes()));
    let header = Header { config_hash, version: env!("CARGO_PKG_VERSION").into(), params };
    let path = metrics_path(out);
    let metrics = match from {
        Some(step) => MetricsWriter::resume(&path, &header, step),
        None => MetricsWriter::create(&path, &header),
    };
    let metrics = metrics.map_err(|why| at_start("write", &path, &why))?;
    // Written atomically: a resumed run takes its options from this file.
    let written = files::replace_in(out, RUN, |out| out.write_all(config.as_bytes()));
    written.map_err(|why| at_start("write", &out.join(RUN), &why))?;
    Ok(metrics)
}

pub(super) fn metrics_path(out: &Path) -> PathBuf {
    out.join("metrics.jsonl")
}

/// Error for an output that cannot be written before the first step. The input is wrong if it names an impossible path.
pub(super) fn at_start(what: &str, path: &Path, why: &io::Error) -> Error {
    if files::is_linked(why) {
        let help = "a run writes only files of its own folder: remove the link, or choose another --out";
        return Error::file(what, path, why).help(help);
    }
    match why.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::Unsupported => Error::file(what, path, why),
        _ => unwritable(what, path, path.parent().unwrap_or(path), why),
    }
}

/// Error for an output that cannot be written during the run. The run can be resumed from its last checkpoint once the
/// cause is removed.
pub(super) fn unwritable(what: &str, path: &Path, out: &Path, why: &io::Error) -> Error {
    let message = format!("cannot {what} {}: {why}", path.display());
    Error::Failed { code: Code::FileUnreadable, message, help: format!("{}, then {}", mended(why), go_on(out)) }
}

/// Returns the fix for a failed write.
fn mended(why: &io::Error) -> &'static str {
    match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free disk space",
        ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f)",
        ErrorKind::NotFound => "do not move the folder while a run writes to it",
        _ => "check the folder and its permissions",
    }
}

/// Returns the command that resumes the run from its newest checkpoint, or restarts it if there is none.
pub(super) fn go_on(out: &Path) -> String {
    match list(out).ok().and_then(|mut all| all.pop()) {
        Some((step, _)) => format!("meshwright train --resume {} resumes after step {step}", quoted(out)),
        None => "start the run again: it has no checkpoint".into(),
    }
}

/// FNV-1a hash of 64 bits (Fowler, Noll, Vo), with its published offset and prime.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_input_and_a_wrong_name_is() {
        let at = |kind: ErrorKind| at_start("write", Path::new("none/run.toml"), &kind.into());
        for kind in [ErrorKind::StorageFull, ErrorKind::FileTooLarge, ErrorKind::Other] {
            assert!(matches!(at(kind), Error::Failed { .. }), "{kind}");
        }
        for kind in [ErrorKind::NotADirectory, ErrorKind::PermissionDenied, ErrorKind::Unsupported] {
            assert!(matches!(at(kind), Error::Request(_)), "{kind}");
        }
    }
}
