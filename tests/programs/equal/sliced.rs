//! Random cases whose sequences run in slices.

use super::generate::{Case, case, pin, unpinned};
use crate::random::Random;
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Model};
use ir::ids::Value;
use ir::types::{DType, DimName};
use scheduler::actions::split_backward;
use scheduler::costs::StageCosts;
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules;
use transforms::slices::slice;

/// Makes the case of a seed.
pub(crate) fn generate(dtype: DType, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let r = &mut random;
    let slices = r.between(2, 3) as u32;
    let microbatches = r.between(1, 4) as u32;
    let ranks = r.between(1, 3) as u32;
    let pipeline = Pipeline { slices, ..Pipeline::new(Placement::Chain, ranks, microbatches) };
    let (mut whole, sizes) = unpinned(r, &pipeline, |r| u64::from(slices) * r.between(1, 3), (dtype, true));
    name_sequence(&mut whole, sizes.seq);
    let mut model = slice(&whole, slices).expect("no op mixes places");
    pin(r, &mut model);
    let schedule = |r: &mut Random| {
        let costs = StageCosts::uniform(ranks, 1.0, 1.0, 1.0, 0.0);
        let made = schedules::find("seq1f1b").expect("a schedule").make(&costs, &pipeline).expect("rows");
        if r.chance(50) { split_backward(made) } else { made }
    };
    Case { whole: Some(whole), ..case(r, seed, (model, sizes), pipeline, schedule) }
}

/// Dim 1 of what blocks pass and are fed is the sequence.
fn name_sequence(model: &mut Model, size: u64) {
    let name = Some(model.dims.push(DimName::new("s", size, Some(DimRole::Sequence))));
    model.inputs.iter_mut().for_each(|input| input.ty.dims[1].name = name);
    for block in model.blocks.values_mut() {
        let passed: Vec<Value> = block.args_of(ArgKind::Value).chain(block.args_of(ArgKind::Input)).collect();
        passed.into_iter().for_each(|value| block.values[value].ty.dims[1].name = name);
    }
}
