//! Marks of the calls whose saved activations are offloaded to host memory: all calls, or those of the first layers of each stage.

use crate::recompute::{CallPart, is_layer, split};
use ir::graph::Model;

/// Marks all calls.
pub fn offload_all(model: &mut Model) {
    model.calls.iter_mut().for_each(|call| call.offload = true);
}

/// The number of layers that are marked; `None` if all calls are, or none.
pub fn offloaded_layers(model: &Model) -> Option<u32> {
    let is_in_part = model.calls.iter().any(|call| call.offload) && !model.calls.iter().all(|call| call.offload);
    let marked = model.calls.iter().filter(|call| call.offload && call.slice.unwrap_or(0) == 0);
    is_in_part.then(|| marked.map(|call| call.instances()).sum())
}

/// Marks the first `n` layers of each stage and no other call. A stage begins at a block instance, counted over all calls and
/// their instances.
pub fn offload_layers(model: &mut Model, layers: u32, starts: &[usize]) {
    let (mut run, mut of_stage) = (0, 0);
    for call in std::mem::take(&mut model.calls) {
        let (is_layer, block) = (is_layer(&model.blocks[call.block]), call.block);
        let mut parts: Vec<CallPart> = Vec::new();
        for _ in 0..call.instances() {
            of_stage = if starts.contains(&run) { 0 } else { of_stage };
            of_stage += u32::from(is_layer && call.slice.unwrap_or(0) == 0);
            let offload = is_layer && of_stage <= layers;
            match parts.last_mut() {
                Some(last) if last.offload == offload => last.instances += 1,
                _ => parts.push(CallPart { block, offload, instances: 1 }),
            }
            run += 1;
        }
        let split = split(model, &call, &parts);
        model.calls.extend(split);
    }
}
