//! Compilation within the memory budget of `--memory`. The search for shardings counts long-lived values. The rest of an
//! arena is known only after buffer assignment. The search is then repeated with a budget smaller by this rest, until the
//! arenas fit.

use crate::compile_error::CompileError;
use crate::pass::Context;
use crate::pass_manager::PassManager;
use crate::pipeline_options::{Listeners, PipelineOptions};
use cost::Platform;
use ir::options::{PlanOptions, Sharding};
use ir::text::File;
use planner::PlanError;
use std::time::Duration;
use support::stopwatch::Stopwatch;
use tracing::debug;

/// How often the search gets less memory.
const ROUNDS: u32 = 8;

/// The least by which a round takes memory away, relative to the limit.
const LEAST: u64 = 500;

/// The part of a deadline that each round gets of what is left.
const SHARE: f64 = 0.6;

/// Compiles as [`PassManager::run`], with no arena above the memory of a device where shardings are decided by cost.
///
/// # Errors
/// As there; and no shardings are found whose arenas fit.
pub(crate) fn compile(
    passes: &mut PassManager<'_>,
    file: File,
    request: &PipelineOptions,
    platform: &Platform<'_>,
    listeners: Listeners<'_, '_>,
) -> Result<File, CompileError> {
    let limit = match request.options.sharding {
        Sharding::Auto { memory, .. } if is_decided(passes, &file, request) => {
            memory.unwrap_or(platform.cluster.device.memory)
        }
        _ => return passes.run(file, &mut Context::new(request, platform, listeners)),
    };
    let Listeners { observer, watch } = listeners;
    let mut rounds = Rounds::new(request, limit);
    for round in 1..=ROUNDS {
        let request = rounds.request(request);
        let (mut seen, mut held) = (Vec::new(), None);
        let whole = PipelineOptions { stop_after: None, ..request.clone() };
        let inner = Listeners {
            observer: &mut |pass, file| seen.push((pass, file.clone())),
            watch: &mut |so_far| {
                held = Some(so_far.peak);
                watch(so_far);
            },
        };
        let made = passes.run(file.clone(), &mut Context::new(&whole, platform, inner));
        match made {
            Err(CompileError::Plan(PlanError::NoRoom { .. })) if round > 1 => break,
            Err(CompileError::Plan(PlanError::NoRoom { .. })) => {
                seen.iter().for_each(|(pass, file)| observer(pass, file));
                return made;
            }
            _ => {}
        }
        let arena = made.as_ref().map_or(0, arena);
        debug!(
            round,
            searched_bytes = rounds.memory,
            arena_bytes = arena,
            limit_bytes = limit,
            "memory of the shardings"
        );
        if arena > limit {
            let Some(held) = held else { break };
            rounds.take(held, (arena - limit).max(u64::from(round) * limit / LEAST));
            continue;
        }
        if request.stop_after.is_some() {
            let listeners = Listeners { observer, watch: &mut |_| {} };
            return passes.run(file, &mut Context::new(&request, platform, listeners));
        }
        seen.iter().for_each(|(pass, file)| observer(pass, file));
        return made;
    }
    Err(PlanError::NoRoom { bytes: limit, is_proved: false }.into())
}

/// True if the file leaves shardings open and the request goes on until they are decided.
fn is_decided(passes: &PassManager<'_>, file: &File, request: &PipelineOptions) -> bool {
    let stop_after = request.stop_after.as_deref();
    let reached = stop_after.is_none_or(|stop| passes.place(stop).ok() >= passes.place("shard").ok());
    reached && !(file.model.has_mesh && file.model.is_fully_specified())
}

/// The bytes of the largest arena.
fn arena(file: &File) -> u64 {
    let classes = file.program.iter().flat_map(|program| program.classes.iter());
    classes.filter_map(|class| class.arena.as_ref()).map(|arena| arena.bytes).max().unwrap_or(0)
}

/// Input of the search in each round.
struct Rounds {
    memory: u64,
    deadline: Option<Duration>,
    began: Stopwatch,
}

impl Rounds {
    fn new(request: &PipelineOptions, limit: u64) -> Rounds {
        let deadline = match request.options.sharding {
            Sharding::Auto { deadline, .. } => deadline,
            Sharding::Rules => None,
        };
        Rounds { memory: limit, deadline, began: Stopwatch::start() }
    }

    fn request(&self, request: &PipelineOptions) -> PipelineOptions {
        let mut options: PlanOptions = request.options.clone();
        if let Sharding::Auto { memory, deadline, .. } = &mut options.sharding {
            *memory = Some(self.memory);
            *deadline = self.deadline.map(|deadline| deadline.saturating_sub(self.began.elapsed()).mul_f64(SHARE));
        }
        PipelineOptions { options, ..request.clone() }
    }

    /// Less than a round has used.
    fn take(&mut self, held: u64, excess: u64) {
        self.memory = self.memory.min(held).saturating_sub(excess);
    }
}
