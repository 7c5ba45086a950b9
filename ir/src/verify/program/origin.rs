//! The symbolic origin of each tensor of a row, and the origins that the model requires runs to read.

use crate::graph::{LossMean, Model, ResultKind, SectionKind};
use crate::ids::ModelValue;
use std::collections::{BTreeMap, BTreeSet};

/// A block instance: (call, instance).
pub(super) type RunId = (usize, u32);

/// A part of a sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Atom {
    Input {
        input: ModelValue,
        microbatch: u32,
    },
    LossGrad(LossMean),
    Result {
        run: RunId,
        result: usize,
        microbatch: u32,
    },
    /// The cotangent that a run returns for one of its arguments (counted among values and inputs).
    Cotangent {
        run: RunId,
        arg: usize,
        microbatch: u32,
    },
    /// A result of R of a run.
    Returned {
        run: RunId,
        place: usize,
    },
    /// A result of the step graph.
    Step {
        place: usize,
    },
}

/// A tensor is the sum of its parts.
pub(super) type Parts = BTreeSet<Atom>;

impl Atom {
    pub(super) fn microbatch(&self) -> Option<u32> {
        match *self {
            Atom::Input { microbatch, .. } | Atom::Result { microbatch, .. } | Atom::Cotangent { microbatch, .. } => {
                Some(microbatch)
            }
            Atom::LossGrad(_) | Atom::Returned { .. } | Atom::Step { .. } => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Input(ModelValue),
    Result(RunId, usize),
}

impl Origin {
    fn atom(self, microbatch: u32) -> Atom {
        match self {
            Origin::Input(input) => Atom::Input { input, microbatch },
            Origin::Result(run, result) => Atom::Result { run, result, microbatch },
        }
    }
}

/// The readers of each value, by the calls of the model.
#[derive(Default)]
pub(super) struct Reads {
    /// Per run, the origins of its arguments.
    args: BTreeMap<RunId, Vec<Origin>>,
    /// Per result, the (run, argument) pairs that return a cotangent.
    readers: BTreeMap<(RunId, usize), Vec<(RunId, usize)>>,
}

impl Reads {
    pub(super) fn new(model: &Model) -> Reads {
        let mut reads = Reads::default();
        let mut known: BTreeMap<ModelValue, Origin> =
            model.inputs.iter().map(|input| (input.value, Origin::Input(input.value))).collect();
        for (index, call) in model.calls.iter().enumerate() {
            let block = &model.blocks[call.block];
            let passed: Vec<usize> =
                (0..block.results.len()).filter(|&r| block.results[r] == ResultKind::Value).collect();
            let mut args: Vec<Option<Origin>> = call.args.iter().map(|value| known.get(value).copied()).collect();
            for instance in 0..call.instances() {
                let run = (index, instance);
                reads.args.insert(run, args.iter().flatten().copied().collect());
                for (arg, value) in block.passed_args().enumerate() {
                    let flows = block.differentiable_args().any(|other| other == value);
                    if let (Some(Some(Origin::Result(from, result))), true) = (args.get(arg), flows) {
                        reads.readers.entry((*from, *result)).or_default().push((run, arg));
                    }
                }
                for (place, &result) in passed.iter().enumerate() {
                    if place < args.len() {
                        args[place] = Some(Origin::Result(run, result));
                    }
                    if let (Some(&value), true) = (call.results.get(place), instance + 1 == call.instances()) {
                        known.insert(value, Origin::Result(run, result));
                    }
                }
            }
        }
        reads
    }

    /// The operands of F of a run.
    pub(super) fn forward(&self, run: RunId, microbatch: u32) -> Vec<Parts> {
        self.args.get(&run).into_iter().flatten().map(|origin| Parts::from([origin.atom(microbatch)])).collect()
    }

    /// The operands of I of a run.
    pub(super) fn backward(&self, model: &Model, run: RunId, microbatch: u32) -> Vec<Parts> {
        let block = &model.blocks[model.calls[run.0].block];
        let mut cotangents = Vec::new();
        for (result, _) in block.differentiable_results() {
            if let Some(mean) = block.results[result].mean() {
                cotangents.push(Parts::from([Atom::LossGrad(mean)]));
                continue;
            }
            let readers = self.readers.get(&(run, result)).into_iter().flatten();
            cotangents.push(readers.map(|&(run, arg)| Atom::Cotangent { run, arg, microbatch }).collect());
        }
        cotangents
    }
}

/// The places of a run's differentiable arguments among those that calls pass.
pub(super) fn cotangent_places(model: &Model, run: RunId) -> Vec<usize> {
    let block = &model.blocks[model.calls[run.0].block];
    block.differentiable_args().filter_map(|value| block.passed_args().position(|arg| arg == value)).collect()
}

/// All runs of the model.
pub(super) fn runs(model: &Model) -> Vec<RunId> {
    let calls = model.calls.iter().enumerate();
    calls.flat_map(|(index, call)| (0..call.instances()).map(move |instance| (index, instance))).collect()
}

/// All parts that the sum of the step graph must have.
pub(super) fn returned(model: &Model, place: usize) -> Parts {
    let mut parts = Parts::new();
    for run in runs(model) {
        if !model.blocks[model.calls[run.0].block][SectionKind::U].ret.is_empty() {
            parts.insert(Atom::Returned { run, place });
        }
    }
    parts
}

/// All parts that the loss of a step must have.
pub(super) fn losses(model: &Model, microbatches: u32) -> Parts {
    let mut parts = Parts::new();
    for run in runs(model) {
        let results = &model.blocks[model.calls[run.0].block].results;
        for result in (0..results.len()).filter(|&result| results[result] == ResultKind::Loss) {
            parts.extend((0..microbatches).map(|microbatch| Atom::Result { run, result, microbatch }));
        }
    }
    parts
}
