//! Optional measurements of a training run: the trace of a step, and totals over all steps.

use super::backend::{Place, Reached};
use super::outputs::unwritable;
use super::report::ProfileReport;
use super::request::TrainRequest;
use super::run::executor_error;
use crate::error::Error;
use compiler::precision::precision;
use cost::model_flops;
use exec::{Executor, Platform};
use ir::graph::Model;
use ir::program::Program;
use std::path::{Path, PathBuf};
use support::files;
use trace::{Profile, Trace};

/// Measurements of a run.
pub(super) struct Measure {
    model: Model,
    program: Program,
    /// Model FLOPs of a step.
    flops: f64,
    /// Totals of `--profile`.
    profile: Option<Profile>,
    /// The peak of the machine, for them; in the first process alone.
    reached: Option<Reached>,
    /// Step and output file of `--trace`.
    trace: Option<(u64, PathBuf)>,
    /// Trace of that step, until it is written.
    unwritten: Option<Trace>,
    /// True if the next step is the first of several, which is a warm-up and not measured.
    cold: bool,
}

impl Measure {
    /// Prepares the measurements, or returns `None` if none is requested. `--profile` measures the machine first.
    ///
    /// # Errors
    /// The machine cannot be measured.
    pub(super) fn new(
        request: &TrainRequest,
        model: &Model,
        program: &Program,
        place: &Place,
        threads: usize,
        is_first: bool,
    ) -> Result<Option<Measure>, Error> {
        let trace = request.trace.clone().map(|path| (request.trace_step.unwrap_or(request.steps), path));
        if !request.profile && trace.is_none() {
            return Ok(None);
        }
        let dtype = precision(&request.precision)?.dtype;
        let measures = request.profile && is_first;
        let reached = measures.then(|| place.peak(threads, model.mesh.devices(), dtype)).transpose()?;
        let profile = request.profile.then(Profile::default);
        let flops = model_flops(model) * f64::from(program.microbatches);
        let (model, program, cold) = (model.clone(), program.clone(), request.steps > 1);
        Ok(Some(Measure { model, program, flops, profile, reached, trace, unwritten: None, cold }))
    }

    /// Lets a step that comes be recorded, if it is measured.
    pub(super) fn before<P: Platform>(&self, step: u64, executor: &mut Executor<P>) {
        executor.set_recording(self.is_traced(step) || (self.profile.is_some() && !self.cold));
    }

    fn is_traced(&self, step: u64) -> bool {
        self.trace.as_ref().is_some_and(|(traced, _)| *traced == step)
    }

    /// Takes the measurements of a step that has just ended.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn after<P: Platform>(&mut self, step: u64, executor: &mut Executor<P>) -> Result<(), Error> {
        let wanted = self.is_traced(step);
        let cold = std::mem::take(&mut self.cold);
        let profiled = self.profile.as_mut().filter(|_| !cold);
        if !wanted && profiled.is_none() {
            return Ok(());
        }
        let Some(trace) = executor.trace_of_all(&self.model, &self.program).map_err(executor_error)? else {
            return Ok(());
        };
        profiled.into_iter().for_each(|profile| profile.add(&trace));
        self.unwritten = wanted.then_some(trace).or(self.unwritten.take());
        Ok(())
    }

    /// Writes the trace, if one is recorded and not yet written.
    ///
    /// # Errors
    /// The file cannot be written; the next call retries.
    pub(super) fn write(&mut self, out: &Path) -> Result<(), Error> {
        let (Some(trace), Some((_, path))) = (&self.unwritten, &self.trace) else { return Ok(()) };
        files::write(path, |out| trace::write(trace, out)).map_err(|why| unwritable("write", path, out, &why))?;
        self.unwritten = None;
        Ok(())
    }

    /// Model FLOPs utilisation of a step, from its seconds; `None` without a measured peak.
    pub(super) fn mfu(&self, seconds: f64) -> Option<f64> {
        self.reached.as_ref().map(|reached| self.flops / (seconds * reached.peak.flops))
    }

    /// Returns the profile, or `None` if no step was measured.
    pub(super) fn report(&self) -> Option<ProfileReport> {
        let profile = self.profile.as_ref().filter(|profile| profile.steps > 0)?;
        let reached = self.reached.as_ref()?;
        let step_s = profile.seconds / profile.steps as f64;
        Some(ProfileReport {
            steps: profile.steps,
            step_s,
            ranks: profile.ranks,
            at_once: reached.at_once,
            peak: reached.peak,
            peak_by: reached.by,
            model_flops_per_s: self.flops / step_s,
            shares: profile.shares(),
            kernels: profile.kernels(),
        })
    }
}
