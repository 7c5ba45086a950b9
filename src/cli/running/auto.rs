//! `meshwright train --auto`: the configuration comes from a search for this machine.

use crate::cli::options::request::{Fields, resolve};
use crate::cli::plan::planned;
use crate::error::Error;
use crate::train::TrainRequest;
use autotune::explain::{Planned, brief};
use autotune::plan::PlanRequest;
use clap::Args;
use compiler::parallel;
use estimator::Estimator;
use ir::optimizer::OptimizerKind;
use ir::options::ParallelConfig;
use serde::Serialize;
use support::units::time;

/// Flags of a search before training.
#[derive(Args)]
pub(in crate::cli) struct AutoFlags {
    /// Plan the configuration of --devices for this machine, and train in it
    #[arg(long, requires = "devices", conflicts_with_all = ["config", "request", "plan", "resume", "parallel"])]
    pub(in crate::cli) auto: bool,
    /// Devices that --auto plans for
    #[arg(long, value_name = "N", requires = "auto")]
    devices: Option<u64>,
    /// Cluster that --auto plans for: a name, or the TOML file that `calibrate` has written [default: cpu]
    #[arg(long, value_name = "NAME", requires = "auto")]
    cluster: Option<String>,
    /// Options that the configuration of --auto must have, such as tp=2 or zero=1|3
    #[arg(long, value_name = "CONFIG", requires = "auto")]
    pin: Option<String>,
}

impl AutoFlags {
    /// Fields of the run with the planned configuration, which is printed on standard error.
    pub(in crate::cli) fn fields(&self, flags: &impl Serialize) -> Result<Fields, Error> {
        let run: TrainRequest = resolve(Fields::new(), flags)?;
        let is_gpu = run.backend == "cuda";
        let Some(cluster) = self.cluster.clone().or_else(|| (!is_gpu).then(|| "cpu".to_string())) else {
            return Err(Error::Usage(
                "--auto with --backend cuda needs --cluster: `calibrate --backend cuda -o gpu.toml` writes one".into(),
            ));
        };
        let devices = self.devices.unwrap_or(1);
        let pin = self.pin.as_deref().unwrap_or_default();
        let chosen = match searched(&run, devices, &cluster, pin)? {
            Planned::Best(plan) => plan.chosen,
            Planned::Infeasible(answer) => return Err(answer.error().into()),
        };
        eprintln!("planned   {}: {} a step", brief(&chosen.parallel), time(chosen.predicted.step_time_s));
        let mut fields = Fields::new();
        fields.insert("parallel".into(), parallel::print(&chosen.with_stages()).into());
        Ok(fields)
    }
}

/// The best configuration of a number of devices for a run; none if none fits.
pub(in crate::cli) fn search(
    run: &TrainRequest,
    devices: u64,
    cluster: &str,
    pin: &str,
) -> Result<Option<ParallelConfig>, Error> {
    match searched(run, devices, cluster, pin)? {
        Planned::Best(plan) => Ok(Some(plan.chosen.with_stages())),
        Planned::Infeasible(_) => Ok(None),
    }
}

/// The optimizer that predictions know, with states enough for this one.
fn states_of(kind: &OptimizerKind) -> &'static str {
    match kind {
        OptimizerKind::AdamW { .. } | OptimizerKind::Muon { .. } => "adamw",
        OptimizerKind::Sgd { momentum: 0.0, .. } => "sgd",
        OptimizerKind::Sgd { .. } => "momentum",
    }
}

fn searched(run: &TrainRequest, devices: u64, cluster: &str, pin: &str) -> Result<Planned, Error> {
    let stack = if run.backend == "cuda" { "meshwright-cuda" } else { "meshwright-threads" };
    let request = PlanRequest {
        stack: stack.into(),
        precision: if run.precision == "f16" { "fp16".into() } else { run.precision.clone() },
        optimizer: states_of(&run.optimizer()?.kind).into(),
        pin: pin.into(),
        ..PlanRequest::new(&run.model, cluster, devices, run.seq, run.global_batch)
    };
    planned(&Estimator::new(), &request)
}
