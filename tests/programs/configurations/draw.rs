//! A random model, how it is trained, and a random configuration of up to eight devices.

use crate::meshes::record::sgd;
use crate::meshes::text::GLOBAL_BATCH;
use crate::meshes::training::{Recipe, models};
use crate::random::Random;
use ir::models::{Experts, Gpt2Config, LlamaConfig, ModelConfig, Window};
use ir::optimizer::Optimizer;
use scheduler::schedules::{SCHEDULES, ScheduleKind};
use std::fmt;

/// Steps of a run: parameters of the second depend on the exchange of the first.
const STEPS: u64 = 2;
const PRECISIONS: [&str; 5] = ["bf16", "f16", "fp8-tensor", "fp8-delayed", "fp8-block"];

/// A case.
pub(crate) struct Draw {
    pub(crate) recipe: Recipe,
    /// The configuration.
    pub(crate) mesh: String,
    /// Sequences of a micro-batch over all ranks.
    pub(crate) sequences: u64,
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Draw { recipe, mesh, sequences } = self;
        let experts = matches!(&recipe.config, ModelConfig::Llama(LlamaConfig { experts: Some(_), .. }));
        let family = if experts { "experts" } else { recipe.config.family() };
        write!(f, "{family} in {} by {:?} on {mesh}, {sequences} sequences", recipe.precision, recipe.optimizer.kind)
    }
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        let mut random = Random::new(seed ^ 0x1a_0175);
        let (config, has_experts) = config(&mut random);
        let precision = if random.chance(70) { "f32" } else { *random.pick(&PRECISIONS) };
        // AdamW divides by the roots of gradients, and makes much of their rounding.
        let optimizer = if random.chance(50) || precision != "f32" { sgd() } else { Optimizer::default() };
        let lr = if optimizer == sgd() { 0.1 } else { 5e-3 };
        let (mesh, sequences) = mesh(&mut random, has_experts);
        let config = if mesh.contains("pp=1") { shallow(config) } else { config };
        let recipe = Recipe { config, optimizer, lr, steps: STEPS, precision };
        Draw { recipe, mesh, sequences }
    }
}

/// A Llama, with few heads of keys or a window in some layers, one with experts that drop or do not, or a GPT-2; whether it has experts.
fn config(random: &mut Random) -> (ModelConfig, bool) {
    let [llama, gpt2] = models();
    let ModelConfig::Llama(llama) = llama else { return (gpt2, false) };
    let kv_heads = *random.pick(&[12, 4, 2]);
    let llama = LlamaConfig { kv_heads, ..llama };
    // Routing groups of 4 tokens, so that ranks may share a sequence.
    let experts = |count, chosen| Experts { group: Some(4), ..Experts::softmax(count, chosen, 24) };
    match random.below(5) {
        0 => (ModelConfig::Llama(llama), false),
        1 => (ModelConfig::Llama(LlamaConfig { window: Some(Window::of_all(5)), ..llama }), false),
        2 => {
            let experts = Experts { capacity: Some(1.5), ..experts(4, 2) };
            (ModelConfig::Llama(LlamaConfig { experts: Some(experts), layers: 2, ..llama }), true)
        }
        3 => {
            // Of eight experts some get no token of a group, of four that each token chooses all get every one. With one that is chosen the
            // router's gradient would be rounding, of which AdamW makes steps.
            let (count, chosen) = *random.pick(&[(4, 2), (6, 2), (8, 2), (8, 3), (4, 4)]);
            let shared = *random.pick(&[0, 0, 20]);
            let experts = Experts { shared, ..experts(count, chosen) };
            (ModelConfig::Llama(LlamaConfig { experts: Some(experts), layers: 2, ..llama }), true)
        }
        _ => (gpt2, false),
    }
}

/// The same model with two layers, which without a pipeline show as much as four.
fn shallow(config: ModelConfig) -> ModelConfig {
    match config {
        ModelConfig::Llama(llama) => ModelConfig::Llama(LlamaConfig { layers: 2, ..llama }),
        ModelConfig::Gpt2(gpt2) => ModelConfig::Gpt2(Gpt2Config { layers: 2, ..gpt2 }),
    }
}

/// Degrees whose product is that of the devices, and options; the sequences of a micro-batch.
fn mesh(random: &mut Random, has_experts: bool) -> (String, u64) {
    let mut left: u64 = *random.pick(&[2, 4, 4, 6, 8, 8]);
    let (mut items, mut degrees) = (Vec::new(), [1; 4]);
    for (place, axis) in ["tp", "pp", "cp", "dp"].into_iter().enumerate() {
        let choices: Vec<u64> = (1..=left.min(4)).filter(|degree| left.is_multiple_of(*degree)).collect();
        degrees[place] = if axis == "dp" { left } else { *random.pick(&choices) };
        left /= degrees[place];
        items.push(format!("{axis}={}", degrees[place]));
    }
    let [tp, pp, cp, dp] = degrees;
    let zero = random.between(0, 3);
    items.push(format!("zero={zero}"));
    let mut option = |random: &mut Random, percent, item: String| {
        if random.chance(percent) {
            items.push(item);
        }
    };
    let shards: Vec<u64> = (1..=dp * cp).filter(|shard| (dp * cp).is_multiple_of(*shard)).collect();
    let shard = *random.pick(&shards);
    option(random, if zero > 0 { 30 } else { 0 }, format!("shard={shard}"));
    option(random, if zero == 3 { 50 } else { 0 }, "gather=step".to_string());
    option(random, if tp > 1 { 50 } else { 0 }, "sp=true".to_string());
    let kind = *random.pick(&["allgather", "ring", "ring", "ulysses"]);
    option(random, if cp > 1 { 100 } else { 0 }, format!("cp_kind={kind}"));
    let (ep, etp) = (*random.pick(&[1, 2, 4]), *random.pick(&[1, 1, 2]));
    option(random, if has_experts { 100 } else { 0 }, format!("ep={ep},etp={etp}"));
    let again = *random.pick(&["full", "full:1", "selective:core_attn", "selective:mlp+layernorm", "selective:n+q"]);
    option(random, 40, format!("recompute={again}"));
    option(random, 20, "offload=true".to_string());
    option(random, 20, "offload_optimizer=true".to_string());
    let order = *random.pick(&["dp,pp,cp,tp", "pp,tp,cp,dp", "cp,dp,tp,pp"]);
    option(random, 10, format!("rank_order={order}"));
    let sequences = *random.pick(&[2, 4, 4, 8]);
    if pp > 1 {
        items.push(format!("schedule={}", schedule(random, pp as u32, (GLOBAL_BATCH / sequences) as u32)));
    }
    (items.join(","), sequences)
}

/// A schedule for these numbers of ranks and micro-batches, but not `optimal`, whose search takes longest.
fn schedule(random: &mut Random, ranks: u32, microbatches: u32) -> String {
    let fits = |kind: &&&ScheduleKind| {
        let pipeline = kind.pipeline(ranks, None, microbatches);
        kind.name != "optimal" && pipeline.is_ok_and(|pipeline| kind.accepts(&pipeline))
    };
    let all: Vec<&ScheduleKind> = SCHEDULES.iter().collect();
    let fitting: Vec<&&ScheduleKind> = all.iter().filter(fits).collect();
    random.pick(&fitting).name.to_string()
}
