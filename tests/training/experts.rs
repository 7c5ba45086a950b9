//! Small mixtures of experts trained on real text: on every mesh the same numbers as on one device.
//!
//! Which experts a token goes to is no continuous function: where two scores are nearly equal, rounding decides, and runs
//! part. Few steps and few tokens keep such ties out; what is left of one shows as a difference on every mesh at once.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::{alone, trained_on};
use crate::meshes::training::{HIDDEN, Recipe, compiled, inputs, model, models};
use ir::models::{Experts, Latent, LayerSet, LlamaConfig, ModelConfig};
use ir::ops::GroupLimit;
use meshwright::runtime::exec::{Executor, Options};
use std::sync::LazyLock;

/// Sequences of a micro-batch on one device: four micro-batches a step.
const SEQUENCES: u64 = 4;
const STEPS: u64 = 3;

/// Mixtral's kind, whose experts drop tokens, and DeepSeek's, with latent attention and all that its router has.
fn recipes() -> Vec<Recipe> {
    let [ModelConfig::Llama(plain), _] = models() else { panic!("the first is a Llama") };
    let mixtral = LlamaConfig {
        experts: Some(Experts { group: Some(4), capacity: Some(1.0), ..Experts::softmax(6, 2, 20) }),
        layers: 2,
        ..plain.clone()
    };
    let deepseek = LlamaConfig {
        layers: 3,
        latent: Some(Latent {
            query_rank: Some(20),
            key_rank: 16,
            plain: 4,
            turned: 2,
            value: 5,
            score_factor: 1.0,
            gated: false,
        }),
        experts: Some(Experts {
            shared: 24,
            dense: LayerSet::First(1),
            sigmoid: true,
            bias: true,
            limit: Some(GroupLimit { groups: 3, from: 2, by: 2 }),
            scale: 2.5,
            capacity: Some(3.0),
            ..Experts::softmax(6, 2, 20)
        }),
        ..plain
    };
    let recipe = |config| Recipe {
        config: ModelConfig::Llama(config),
        optimizer: sgd(),
        lr: 0.05,
        steps: STEPS,
        precision: "f32",
    };
    [mixtral, deepseek].map(recipe).to_vec()
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

fn trains_as_on_one_device(mesh: &str, sequences: u64) {
    for (which, (recipe, alone)) in ALONE.iter().enumerate() {
        let found = differences(&trained_on(recipe, mesh, sequences), alone, &recipe.optimizer);
        assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
    }
}

#[test]
fn experts_learn_and_lose_tokens() {
    let [(_, tight), (_, roomy)] = ALONE.as_slice() else { panic!("two recipes") };
    assert!(tight.dropped.iter().all(|share| (0.01..0.5).contains(share)), "{:?}", tight.dropped);
    assert!(roomy.dropped.iter().zip(&tight.dropped).all(|(roomy, tight)| roomy < tight), "{:?}", roomy.dropped);
    for (recipe, alone) in ALONE.iter() {
        assert!(alone.losses[STEPS as usize - 1] < alone.losses[0], "{:?}", alone.losses);
        let sizes = |field: &str| {
            let model = model(recipe, SEQUENCES);
            let param = model.params.values().find(|param| param.field.as_deref() == Some(field));
            param.map(|param| param.ty.sizes())
        };
        assert_eq!(sizes("expert_up"), Some(vec![6, HIDDEN, 20]));
    }
}

/// Logits of some hundreds: scores of sigmoids are 0 or 1, and of some tokens all are 0. No gradient is lost for that, with
/// weights that are made to add up to 1 or not, nor by the gate of a shared expert.
#[test]
fn a_router_may_be_sure() {
    let deepseek = recipes().remove(1);
    for (renormalise, shared_gate) in [(true, false), (false, true)] {
        let ModelConfig::Llama(mut config) = deepseek.config.clone() else { panic!("a Llama") };
        let experts = config.experts.take().expect("experts");
        config.experts = Some(Experts { renormalise, shared_gate, ..experts });
        let recipe = Recipe { config: ModelConfig::Llama(config), steps: 1, ..deepseek.clone() };
        let file = compiled(&recipe, "", SEQUENCES);
        let program = file.program.as_ref().expect("a program");
        let mut executor = Executor::load(&file.model, program, &Options::default()).expect("a machine");
        let sharp = |name: &str| name.ends_with(".router") || name.ends_with(".shared_share");
        let params = executor.export_params().expect("parameters").into_iter().filter(|(name, _)| sharp(name));
        let sharper = params.map(|(name, whole)| (name, whole.data.iter().map(|x| 1e3 * x).collect()));
        executor.import_params(sharper.collect()).expect("the model's parameters");
        let output = executor.step(inputs(&file.model, &recipe, "").remove(0)).expect("a step");
        let (loss, norm) = (output.loss.expect("a loss"), output.grad_norm.expect("a norm"));
        assert!(loss.is_finite() && norm.is_finite() && norm > 0.0, "{renormalise}: loss {loss}, norm {norm}");
        for (name, gradient) in executor.gradients().expect("gradients") {
            assert!(gradient.data.iter().all(|x| x.is_finite()), "{renormalise}: {name}");
        }
    }
}

/// One test per mesh: its name, the configuration, and the sequences of a micro-batch over all ranks.
macro_rules! meshes {
    ($($name:ident $mesh:literal $sequences:literal;)*) => {$(
        #[test]
        fn $name() {
            trains_as_on_one_device($mesh, $sequences);
        }
    )*};
}

meshes! {
    micro_batches_do_not_matter "" 16;
    data_parallel "dp=2" 4;
    tensor_parallel "tp=2" 4;
    sequence_parallel "dp=2,tp=2,sp=true" 8;
    pipeline_and_sharded_state "dp=2,tp=2,pp=2,zero=1" 4;
    uneven_batch "dp=3" 4;
    modules_computed_again "dp=2,zero=3,recompute=selective:mla_up_proj+shared_experts+moe_act+op" 4;
    experts_computed_again "dp=2,tp=2,ep=2,recompute=full,zero=2" 4;
}
