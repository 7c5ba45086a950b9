//! Prediction of one request: its candidate, and the report of the candidate's step.

use super::blocks::{Blocks, Planned};
use super::candidate::{Candidate, Staged, Stepped};
use super::cost_database::CostDatabase;
use super::error::Error;
use super::headroom::job;
use super::least_bytes::communicators;
use super::memory::{GIB, fullest_device, holds, host_holds};
use super::notes::{Limits, notes};
use super::offload_choice::as_needed;
use super::place::check_slices;
use super::report::{
    Comm, EstimateReport, LIKELY, Memory, Mesh, Overhead, Predicted, Recomputed, SCHEMA, StageMemory, StageReport,
};
use super::request::EstimateRequest;
use super::stages::StageCost;
use crate::stack_support::{Beyond, beyond};
use cost::{Format, Recipe, Regime, recomputed};
use ir::graph::Block;
use ir::options::{Offload, ParallelConfig, Recompute};
use scheduler::predict::pipeline_of;
use std::sync::Arc;

/// A request whose names are resolved.
pub(super) struct Prediction<'a> {
    pub(super) request: &'a EstimateRequest,
    /// Costs in which each configuration is planned by itself.
    pub(super) database: &'a CostDatabase,
    pub(super) candidate: Candidate<'a>,
}

impl Prediction<'_> {
    /// The step, and the memory of each pipeline rank.
    ///
    /// # Errors
    /// The configuration does not fit the model, or its schedule does not support it.
    pub(super) fn stepped(&self) -> Result<Stepped, Error> {
        let Candidate { parallel, microbatches, .. } = &self.candidate;
        self.database.block_costs(&self.candidate.block_config()?)?;
        let (_, pipeline) = pipeline_of(parallel, *microbatches)?;
        check_slices(self.request.seq, pipeline.slices)?;
        self.database.stepped(&self.candidate)
    }

    /// The same under another recomputation, which becomes the candidate's.
    ///
    /// # Errors
    /// As [`Prediction::stepped`].
    pub(super) fn under(&mut self, recompute: &Recompute) -> Result<Stepped, Error> {
        self.candidate.parallel.recompute.clone_from(recompute);
        self.stepped()
    }

    /// The step with as few layers offloaded as must be, which become the candidate's.
    ///
    /// # Errors
    /// As [`Prediction::stepped`].
    pub(super) fn least_offload(&mut self) -> Result<Stepped, Error> {
        let (budget, stack) = (self.candidate.budget, self.candidate.platform.stack);
        let under = |offload: Offload| {
            self.candidate.parallel.offload = offload;
            self.stepped()
        };
        let (offload, stepped) = as_needed(under, budget, stack)?;
        self.candidate.parallel.offload = offload;
        Ok(stepped)
    }

    /// The model on the configuration's axes below pp.
    pub(super) fn planned(&self) -> Result<Arc<Planned>, Error> {
        self.database.planned(&self.candidate.block_config()?.plan)
    }

    /// The report of a step.
    ///
    /// # Errors
    /// The model cannot be planned.
    pub(super) fn report(&self, stepped: Stepped) -> Result<EstimateReport, Error> {
        let request = self.request;
        let Candidate { parallel, platform, budget, .. } = &self.candidate;
        let planned = &*self.planned()?;
        let Stepped { blocks, staged, step, memory: per_stage } = stepped;
        let Recipe { products, parameter, gradient, master, states, .. } = platform.recipe;
        let device = &platform.cluster.device;
        let peak = device.peak(*products).or(device.peak(Format::Half)).unwrap_or(device.flops_f32);
        let microbatches = f64::from(self.candidate.microbatches);
        let batches = microbatches * parallel.dp as f64;
        let work = StepFlops::of(&blocks, &staged.loads);
        let rate = |flops: f64| flops * batches / (step.seconds * parallel.devices() as f64 * peak);
        let tokens = request.global_batch as f64 * request.seq as f64;
        let dropped = planned.dropped(platform.stack);
        let narrow = matches!(products, Format::F8 | Format::F4);
        let regime = Regime { layers: self.database.traits.layers, narrow };
        let job = job(request, parallel, &device.name, blocks.outline.parameters, dropped.is_some(), regime);
        let residual = &platform.stack.residual;
        let interval_s = residual.time_interval(&job).map(|log| step.seconds * log.exp());
        let (held, errors) = (fullest_device(&per_stage), residual.memory_errors(&job));
        let capacity = device.memory as f64;
        let room = (capacity / held).ln();
        let shares = step.shares;
        let worst_rank =
            (0..per_stage.len()).max_by(|&a, &b| per_stage[a].device.total_cmp(&per_stage[b].device)).unwrap_or(0);
        let keeps_headroom = holds(*budget, platform.cluster, &per_stage);
        let chance_to_fit = errors.chance_below(room);
        let fits = match request.memory_margin {
            Some(_) => keeps_headroom,
            None => chance_to_fit >= LIKELY && host_holds(platform.cluster, &per_stage),
        };
        Ok(EstimateReport {
            schema: SCHEMA.to_string(),
            tool_version: env!("CARGO_PKG_VERSION").to_string(),
            status: "ok".to_string(),
            inputs: (*request).clone(),
            mesh: mesh(parallel),
            parallel: parallel.clone(),
            beyond_stack: self.beyond()?,
            assumed: self.assumed(),
            notes: self.notes(&blocks, &staged),
            recomputed: self.recomputed(planned)?,
            stages: staged.loads.iter().map(|load| self.stage(&blocks, load)).collect(),
            predicted: Predicted {
                step_time_s: step.seconds,
                interval_s,
                tokens_per_s_per_gpu: tokens / (step.seconds * parallel.devices() as f64),
                mfu: rate(work.causal),
                mfu_noncausal: rate(work.whole),
                hfu: rate(work.executed),
                flops_per_token: work.causal * batches / tokens,
                peak_flops: peak,
                bytes_per_parameter: parameter + self.database.traits.trained * (gradient + master + states),
                parameters: blocks.outline.parameters,
                regime,
                microbatches: self.candidate.microbatches,
                dropped,
                bubble: staged.flow.bubble,
                time_s: shares,
                exposed_comm_s: Comm { tp: shares.tp, cp: shares.cp, ep: shares.ep, dp: shares.dp, pp: shares.p2p },
                memory_gib: Memory {
                    total: per_stage[worst_rank].device,
                    worst_rank,
                    capacity: capacity / GIB,
                    usable: budget / GIB,
                    host_capacity: platform.cluster.host_memory().map(|memory| memory / GIB),
                    overhead: self.overhead(&per_stage[worst_rank]),
                    per_stage,
                },
                memory_interval_gib: errors.interval().map(|log| held / GIB * log.exp()),
                chance_to_fit,
                fits,
                keeps_headroom,
            },
        })
    }

    /// Parts of the request that the stack or the devices do not support.
    fn beyond(&self) -> Result<Vec<Beyond>, Error> {
        let (request, Candidate { parallel, platform, .. }) = (self.request, &self.candidate);
        let mut found = beyond(parallel, platform.stack, &request.job_numbers(self.database.traits));
        let device = &platform.cluster.device;
        let supports = &platform.stack.supports;
        if !supports.vendor(device.vendor.as_deref()) {
            let item = format!("cluster={}", platform.cluster.name);
            found.push(Beyond { item, source: supports.source("vendors").to_string() });
        }
        if !request.beyond_stack && !device.computes_in(&request.precision) {
            let known = device.precisions.as_ref().map_or_else(String::new, |known| known.join(", "));
            let source = format!("the devices of {} compute in {known}", platform.cluster.name);
            found.push(Beyond { item: format!("precision={}", request.precision), source });
        }
        Ok(found)
    }

    /// Notes on values that change nothing, or that go beyond what the model has.
    fn notes(&self, blocks: &Blocks, staged: &Staged) -> Vec<String> {
        let layers = &blocks.outline.layers;
        let of_stage = |load: &StageCost| load.runs.clone().filter(|run| layers.contains(run)).count();
        let limits = Limits {
            context: self.database.traits.context,
            layers: staged.loads.iter().map(of_stage).max().unwrap_or(0),
        };
        notes(self.request, &self.candidate.parallel, &limits)
    }

    /// Figures of the hardware that are those of other hardware, as text.
    fn assumed(&self) -> Vec<String> {
        let platform = &self.candidate.platform;
        let (cluster, like) = (platform.cluster, platform.cluster.device.attention_like.as_ref());
        let is_used = platform.has_flash() && !cluster.device.attention.is_empty();
        let told = |like: &String| {
            format!("attention as on {like}, by shares of the peak: no kernel of {} is measured", cluster.device.name)
        };
        like.filter(|_| is_used).map(told).into_iter().collect()
    }

    /// Memory of a rank that holds no tensors.
    fn overhead(&self, rank: &StageMemory) -> Overhead {
        let Candidate { parallel, platform, .. } = &self.candidate;
        let traits = &platform.stack.traits;
        Overhead {
            fragmentation: rank.reserved - rank.allocated,
            communicators: communicators(parallel, platform) / GIB,
            context: traits.memory.context / GIB,
            workspace: traits.memory.workspace / GIB,
        }
    }

    /// Recomputed values of each kind of layer.
    fn recomputed(&self, planned: &Planned) -> Result<Vec<Recomputed>, Error> {
        let (model, options) = (&planned.model, self.candidate.block_config()?.options);
        let of_layer = |block: &Block| {
            let values = recomputed(model, block, &options, &self.candidate.platform).into_iter();
            let name = block.name.clone();
            values.map(move |it| Recomputed {
                layer: name.clone(),
                value: it.name,
                op: it.op.to_string(),
                bytes_saved: it.bytes,
                time_s: it.seconds,
            })
        };
        Ok(model.blocks.values().flat_map(of_layer).collect())
    }

    fn stage(&self, blocks: &Blocks, load: &StageCost) -> StageReport {
        let name = |run: usize| blocks.outline.names.get(run).cloned().unwrap_or_default();
        StageReport {
            first: name(load.runs.start),
            last: name(load.runs.end.saturating_sub(1)),
            start: load.runs.start as u32,
            variant: self.candidate.parallel.recompute.to_string(),
            whole: load.whole,
        }
    }
}

fn mesh(parallel: &ParallelConfig) -> Mesh {
    let ParallelConfig { pp, dp, cp, tp, ep, etp, ref rank_order, .. } = *parallel;
    Mesh { devices: parallel.devices(), rank_order: rank_order.to_vec(), pp, dp, cp, tp, ep, etp }
}

/// FLOPs of a micro-batch of one data-parallel rank: forward once and backward twice, or once for products with frozen parameters.
struct StepFlops {
    /// With causal attention halved.
    causal: f64,
    /// With full attention.
    whole: f64,
    /// Executed by kernels, recomputation included.
    executed: f64,
}

impl StepFlops {
    fn of(blocks: &Blocks, loads: &[StageCost]) -> StepFlops {
        let mut work = StepFlops { causal: 0.0, whole: 0.0, executed: 0.0 };
        for load in loads {
            let mut whole = load.whole;
            for run in load.runs.clone() {
                let block = blocks.outline.runs[run];
                let profile = &blocks.profiles[block];
                work.causal += 3.0 * profile.flops - profile.frozen_flops;
                work.whole += 3.0 * profile.flops_noncausal - profile.frozen_flops;
                let recomputed =
                    blocks.recomputed.as_ref().filter(|_| blocks.outline.layers.contains(&run) && whole > 0);
                whole -= usize::from(recomputed.is_some());
                work.executed += recomputed.unwrap_or(&blocks.profiles)[block].executed.total();
            }
        }
        work
    }
}
