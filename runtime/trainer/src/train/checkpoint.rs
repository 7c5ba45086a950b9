//! Checkpoints of a training run: the checkpoint to resume from, and the settings that must not have changed since.

use super::data::Data;
use super::optimizer::fixed_settings;
use super::outputs::go_on;
use super::request::TrainRequest;
use super::run::executor_error;
use crate::error::Error;
use checkpoint::{Checkpoint, list, run_of};
use comm::wire::World;
use compiler::model_source::ModelSource;
use ir::catalogue::Code;
use ir::diag::Coded;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::shell::quoted;

/// Returns the options that a resumed run must not change, apart from the seed. A model given as `.ir` text may change
/// its batch and mesh; its parameters are compared when they are loaded, as are those of an exported model.
///
/// # Errors
/// The request has no optimizer, or a file of the data cannot be read.
pub(super) fn fixed(request: &TrainRequest, source: &ModelSource, data: &Data) -> Result<Value, Error> {
    let model = match source.base() {
        ModelSource::Config { config, .. } => json!(config),
        _ => json!({}),
    };
    let mut fixed = json!({
        "model": model,
        "data": {
            "train_tokens": data.train_tokens(),
            "valid_tokens": data.valid_tokens(),
            "shares": data.shares(),
            "crc32": data.checksum()?,
        },
        "valid_fraction": request.valid_fraction,
        "seq": request.seq,
        "global_batch": request.global_batch,
        "optimizer": request.optimizer,
    });
    for (name, value) in fixed_settings(request)? {
        fixed[name] = value;
    }
    if let Some(examples) = &data.examples {
        fixed["loss_on"] = json!(examples.loss_on);
    }
    if let ModelSource::Adapted { lora, .. } = source {
        fixed["adapters"] = json!({ "rank": lora.rank, "scale": lora.scale, "targets": lora.targets });
    }
    Ok(fixed)
}

/// The part of a process in verifying the files of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verifier {
    /// It verifies them.
    First,
    /// It verifies them if they may be others than those that the first process sees: outside of the folder of the run.
    FirstOfHost,
    /// Another process on its host does so.
    Other,
}

impl Verifier {
    /// That of this process.
    pub(super) fn of(world: Option<&World>) -> Verifier {
        let Some(World { me, processes }) = world else { return Verifier::First };
        match *me {
            0 => Verifier::First,
            me if processes[..me].iter().all(|other| other.host != processes[me].host) => Verifier::FirstOfHost,
            _ => Verifier::Other,
        }
    }
}

/// Finds the checkpoint to resume from, compares its options with the run's and, if that is this process's part, its files with their
/// checksums. Returns `None` for a run that is not resumed.
///
/// # Errors
/// The checkpoint is missing, damaged or of another run, or the output folder has checkpoints of another run.
pub(super) fn find(request: &TrainRequest, fixed: &Value, verifier: Verifier) -> Result<Option<Checkpoint>, Error> {
    let Some(path) = &request.resume else { return alone(&request.out).map(|()| None) };
    let path = if path.as_os_str().is_empty() { &request.out } else { path };
    let checkpoint = Checkpoint::open(path).map_err(refused)?;
    if !is_in(&checkpoint, &request.out) {
        alone(&request.out)?;
    }
    let differences = checkpoint.manifest.differences(fixed, request.seed);
    if !differences.is_empty() {
        return Err(refused(checkpoint::Error::Mismatch { checkpoint: checkpoint.path, differences }));
    }
    let done = checkpoint.manifest.position.step;
    if done > request.steps {
        let message = format!("`steps` is {}, but {} has done {done}", request.steps, checkpoint.path.display());
        return Err(Error::input(Code::BadOption, message)
            .help("--steps counts from the start of the run: give a larger number"));
    }
    let is_of_all = is_in(&checkpoint, &request.out);
    if verifier == Verifier::First || verifier == Verifier::FirstOfHost && !is_of_all {
        checkpoint.verify().map_err(refused)?;
    }
    if let Some(why) = checkpoint.manifest.position.fault(request.global_batch) {
        let file = checkpoint::MANIFEST.to_string();
        return Err(refused(checkpoint::Error::Damaged { checkpoint: checkpoint.path, file, why }));
    }
    Ok(Some(checkpoint))
}

/// Returns whether a checkpoint is in the folder of this run.
pub(super) fn is_in(checkpoint: &Checkpoint, out: &Path) -> bool {
    let [run, out] = [run_of(&checkpoint.path).as_path(), out].map(|path| fs::canonicalize(path).ok());
    out.is_some() && run == out
}

/// Refuses an output folder that has checkpoints.
fn alone(out: &Path) -> Result<(), Error> {
    match list(out).map_err(|why| Error::file("read", out, &why))?.pop() {
        None => Ok(()),
        Some((_, newest)) => {
            let message = format!("{} contains checkpoints of an earlier run", out.display());
            let help = format!("--resume {} resumes from the last one; or choose another --out", quoted(newest));
            Err(Error::input(Code::RunHasCheckpoints, message).help(help))
        }
    }
}

/// Converts a checkpoint error to an error with code and fix.
pub(crate) fn refused(error: checkpoint::Error) -> Error {
    let message = error.to_string();
    let Some(code) = error.code() else { return Error::fault("checkpoint", message) };
    let help = match error {
        checkpoint::Error::Missing { .. } => {
            return Error::input(code, message)
                .help("leave out --resume to start at the first step; put the model before --resume");
        }
        checkpoint::Error::Unwritable { checkpoint, .. } => {
            let out = run_of(&checkpoint);
            let help = match out.is_dir() {
                true => format!("free disk space, or check the folder and its permissions; then {}", go_on(&out)),
                false => "do not move the folder while a run writes to it; start the run again".into(),
            };
            return Error::Failed { code, message, help };
        }
        checkpoint::Error::Unremoved { checkpoint, .. } => {
            let help = format!("check the folder and its permissions; then {}", go_on(&run_of(&checkpoint)));
            return Error::Failed { code, message, help };
        }
        checkpoint::Error::Executor(error) => return executor_error(error),
        checkpoint::Error::Damaged { checkpoint, .. } => match Checkpoint::older(&checkpoint) {
            Some(older) => format!("an older checkpoint is intact: meshwright train --resume {}", quoted(older.path)),
            None => "no older checkpoint is intact: start over with another --out".into(),
        },
        checkpoint::Error::Version { .. } => "resume with the version that wrote it".into(),
        checkpoint::Error::Mismatch { .. } => {
            "resume with the options of the run (--resume alone uses them), or start over with another --out".into()
        }
    };
    Error::Hopeless { code, message, help }
}
