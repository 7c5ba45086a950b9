//! Small models trained by every schedule, and in every placement: the same numbers as on one device.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::{alone, trained};
use crate::meshes::training::{Recipe, model, models, request};
use crate::placed::placed;
use crate::random::Random;
use crate::sample::sampled;
use cost::PROGRAM;
use ir::models::{Gpt2Config, LlamaConfig, ModelConfig};
use ir::optimizer::Optimizer;
use ir::text::File;
use meshwright::compiler::pipeline::compile;
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules::SCHEDULES;
use std::sync::LazyLock;

/// Sequences of a micro-batch: eight micro-batches a step, two per stage of two chains on four ranks.
const SEQUENCES: u64 = 2;
const MICROBATCHES: u32 = 8;
const STEPS: u64 = 3;
/// Layers: with embedding and head enough for four ranks of three stages.
const LAYERS: u32 = 10;

/// A Llama under gradient descent, and a GPT-2 with a tied embedding and dropout under AdamW.
fn recipes() -> [Recipe; 2] {
    models().map(|config| match config {
        ModelConfig::Llama(config) => {
            let config = ModelConfig::Llama(LlamaConfig { layers: LAYERS, ..config });
            Recipe { config, optimizer: sgd(), lr: 0.1, steps: STEPS, precision: "f32" }
        }
        ModelConfig::Gpt2(config) => {
            let dropout = Gpt2Config {
                layers: LAYERS,
                attention_dropout: 0.1,
                residual_dropout: 0.1,
                embedding_dropout: 0.1,
                ..config
            };
            Recipe {
                config: ModelConfig::Gpt2(dropout),
                optimizer: Optimizer::default(),
                lr: 5e-3,
                steps: STEPS,
                precision: "f32",
            }
        }
    })
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

fn same(file: &File, recipe: &Recipe, alone: &Record, mesh: &str, pipeline: Option<&Pipeline>) {
    let found = differences(&trained(file, recipe, mesh), alone, &recipe.optimizer);
    assert!(found.is_empty(), "{} on {mesh} by {pipeline:?}: {found:#?}", recipe.config.family());
}

/// The recipes to train with the case of a number, and their records on one device. A sample has the one and the other in turn.
fn with_records(number: usize) -> &'static [(Recipe, Record)] {
    let one = number % 2;
    &ALONE[sampled(one..one + 1, 0..2)]
}

/// All kinds of the table.
fn every_kind_trains(ranks: u32) {
    for (number, kind) in SCHEDULES.iter().enumerate() {
        let mesh = format!("pp={ranks},schedule={}", kind.name);
        for (recipe, alone) in with_records(number + ranks as usize / 2) {
            let compiled =
                compile(model(recipe, SEQUENCES).into(), &request(recipe, &mesh, SEQUENCES), &PROGRAM, &mut |_, _| {});
            let file = compiled.unwrap_or_else(|why| panic!("{mesh}: {why}"));
            same(&file, recipe, alone, &mesh, None);
        }
    }
}

#[test]
fn every_kind_trains_on_two_ranks() {
    every_kind_trains(2);
}

#[test]
fn every_kind_trains_on_four_ranks() {
    every_kind_trains(4);
}

#[test]
fn any_order_in_any_placement_trains() {
    let mut random = Random::new(1);
    for (number, placement) in Placement::ALL.into_iter().enumerate() {
        for ranks in [2, 4] {
            let chunks = if placement == Placement::Bidirectional { 2 } else { random.between(2, 3) as u32 };
            let pipeline = Pipeline { chunks, ..Pipeline::new(placement, ranks, MICROBATCHES) };
            for (recipe, alone) in with_records(number + ranks as usize / 2) {
                let mesh = format!("pp={ranks}");
                let file = placed(recipe, &mesh, SEQUENCES, &pipeline, random.next());
                same(&file, recipe, alone, &mesh, Some(&pipeline));
            }
        }
    }
}

#[test]
fn any_placement_trains_beside_other_axes() {
    let meshes = ["pp=2,dp=2,tp=2,sp=true,zero=1", "pp=2,tp=2,rank_order=tp,dp,pp", "pp=3,dp=2"];
    for (at, (mesh, ranks)) in meshes.into_iter().zip([2, 2, 3]).enumerate() {
        for (number, placement) in [Placement::Loop, Placement::V, Placement::Bidirectional].into_iter().enumerate() {
            let pipeline = Pipeline::new(placement, ranks, MICROBATCHES);
            for (recipe, alone) in with_records(at + number) {
                let file = placed(recipe, mesh, SEQUENCES, &pipeline, u64::from(ranks));
                same(&file, recipe, alone, mesh, Some(&pipeline));
            }
        }
    }
}
