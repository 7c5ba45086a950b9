//! Errors that end a run between two steps: signals, losses that are no numbers, and data that is gone.

use super::outputs::go_on;
use super::report::Signal;
use super::request::TrainRequest;
use crate::error::Error;
use crate::metrics::StepRecord;
use data::DataError;
use ir::catalogue::Code;
use ir::diag::Coded;

/// Error that ends a run on data that cannot be read any more. A file that was cut short stays so until somebody mends it, but a
/// system that refuses to read may have failed by chance.
pub(super) fn without_data(why: DataError, step: u64, request: &TrainRequest) -> Error {
    let Some(code) = why.code() else { return why.into() };
    let message = format!("{why}; the run ended after step {step} of {}", request.steps);
    let then = go_on(&request.out);
    match why {
        DataError::CutShort { .. } => {
            Error::Hopeless { code, message, help: format!("copy the file again from where it is whole, then {then}") }
        }
        DataError::Unreadable { .. } => Error::Failed { code, message, help: format!("check its disk, then {then}") },
        other => other.into(),
    }
}

/// Error that ends a run on data that another process cannot read any more.
pub(super) fn without_data_elsewhere(step: u64, request: &TrainRequest) -> Error {
    let message = format!("another process cannot read its data; the run ended after step {step} of {}", request.steps);
    let help = format!("its own message names the file; mend it, then {}", go_on(&request.out));
    Error::Hopeless { code: Code::TokensDamaged, message, help }
}

/// Error that ends a run on a signal.
pub(super) fn ended(signal: Signal, step: u64, request: &TrainRequest) -> Error {
    Error::Ended {
        code: Code::RunEnded,
        signal: signal.number(),
        message: format!("{} ended the run after step {step} of {}", signal.name(), request.steps),
        help: go_on(&request.out),
    }
}

/// Error that ends a run whose caller cancelled it.
pub(super) fn cancelled(step: u64, request: &TrainRequest) -> Error {
    Error::Failed {
        code: Code::Cancelled,
        message: format!("the run was cancelled after step {step} of {}", request.steps),
        help: go_on(&request.out),
    }
}

/// Error that ends a run on a step without an update, or with a loss that is no number.
pub(super) fn not_finite(record: &StepRecord, skipped: u64) -> Error {
    let StepRecord { step, loss, grad_norm, .. } = record;
    let before = match skipped {
        0 => String::new(),
        1 => "; 1 step was skipped before".to_string(),
        _ => format!("; {skipped} steps were skipped before"),
    };
    diverged(
        format!("step {step}: the loss is {loss}, the gradient norm {grad_norm}{before}"),
        "--skip-nonfinite N skips the updates of N such steps, if they are few",
    )
}

/// Error that ends a run on a validation loss that is no number.
pub(super) fn no_valid_loss(step: u64, loss: f64) -> Error {
    diverged(format!("step {step}: the validation loss is {loss}"), "an unchanged run would fail again")
}

fn diverged(message: String, further: &str) -> Error {
    let help = format!("lower --lr, lengthen --warmup or set --clip; {further}");
    Error::Hopeless { code: Code::NotFinite, message, help }
}
