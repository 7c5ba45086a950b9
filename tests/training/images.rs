//! Models that read images: losses are the same on every layout, pixels reach the loss, a run goes on after a stop, and data that does not
//! fit is refused.

use meshwright::train::{EvalRecord, Progress, RunHeader, StepRecord, TrainRequest, train};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const SEQ: u64 = 16;
/// The token of a row of an image.
const IMAGE: i64 = 7;
/// The most that two layouts differ in a loss or a norm, relative: sums of f32 in another order.
const APART: f64 = 2e-5;

/// Losses and norms.
#[derive(Default)]
struct Figures(Vec<f64>);

impl Progress for Figures {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, step: &StepRecord) {
        self.0.extend([step.loss, step.grad_norm]);
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, eval: &EvalRecord) {
        self.0.push(eval.valid_loss);
    }
}

/// Models whose rows are squares of 2 x 2 patches.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// Mistral Small 3.1 in small.
    Pixtral,
    /// Qwen3-VL in small, with experts: its text model adds rows of two inner layers.
    Qwen,
}

impl Reader {
    fn model(self) -> Value {
        match self {
            Reader::Pixtral => {
                json!({"model_type": "mistral3", "image_token_index": IMAGE, "tie_word_embeddings": false,
                "vision_config": {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "patch_size": 2, "hidden_act": "silu", "initializer_range": 0.2},
                "text_config": {"model_type": "mistral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 64, "sliding_window": null,
                    "initializer_range": 0.2}})
            }
            Reader::Qwen => json!({"model_type": "qwen3_vl_moe", "image_token_id": IMAGE, "tie_word_embeddings": false,
                "vision_config": {"model_type": "qwen3_vl_moe", "depth": 3, "hidden_size": 32, "intermediate_size": 24,
                    "num_heads": 4, "patch_size": 2, "out_hidden_size": 16, "num_position_embeddings": 9,
                    "deepstack_visual_indexes": [0, 1], "initializer_range": 0.2},
                "text_config": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "num_experts": 4, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 16, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
                    "initializer_range": 0.2}}),
        }
    }

    /// The sizes of pixels, and the tensor of the sizes of images, of images with these numbers of rows.
    fn sizes(self, images: &[[usize; 2]]) -> (Vec<usize>, &'static str, Vec<i64>) {
        match self {
            Reader::Pixtral => {
                let [height, width] = [0, 1].map(|side| images.iter().map(|image| image[side] * 4).max().unwrap_or(0));
                let sizes = images.iter().flatten().map(|rows| *rows as i64 * 4);
                (vec![images.len(), 3, height, width], "image_sizes", sizes.collect())
            }
            Reader::Qwen => {
                let patches = images.iter().map(|[rows, columns]| rows * columns * 4).sum();
                let grid = images.iter().flat_map(|[rows, columns]| [1, *rows as i64 * 2, *columns as i64 * 2]);
                (vec![patches, 3 * 2 * 2 * 2], "image_grid_thw", grid.collect())
            }
        }
    }
}

/// Writes an example of images with these numbers of rows, which stand behind its first token, with a token between them.
fn write(folder: &Path, number: usize, reader: Reader, images: &[[usize; 2]], shade: f32) {
    let mut ids: Vec<i64> = (0..SEQ as i64).map(|at| 8 + (at * 5 + number as i64 * 3) % 50).collect();
    let mut at = 1;
    for [rows, columns] in images {
        ids[at..at + rows * columns].fill(IMAGE);
        at += rows * columns + 1;
    }
    let (shape, name, sizes) = reader.sizes(images);
    let pixels = (0..shape.iter().product()).map(|at: usize| ((at * 7 + number * 11) % 23) as f32 / 12.0 - shade);
    let bytes = |numbers: &[i64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let (ids, size_bytes) = (bytes(&ids), bytes(&sizes));
    let pixels: Vec<u8> = pixels.flat_map(f32::to_le_bytes).collect();
    let mut tensors = vec![("input_ids", TensorView::new(Dtype::I64, vec![1, SEQ as usize], &ids).unwrap())];
    if !images.is_empty() {
        let sides = sizes.len() / images.len();
        tensors.push((name, TensorView::new(Dtype::I64, vec![images.len(), sides], &size_bytes).unwrap()));
        tensors.push(("pixel_values", TensorView::new(Dtype::F32, shape, &pixels).unwrap()));
    }
    fs::write(folder.join(format!("{number:03}.safetensors")), serialize(tensors, None).unwrap()).unwrap();
}

/// A folder with a model, and examples of two images, of one and of none.
fn folder(reader: Reader, shade: f32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), reader.model().to_string()).unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    for number in 0..20 {
        let images: &[[usize; 2]] = match number % 3 {
            0 => &[[1, 2], [2, 2]],
            1 => &[[2, 1]],
            _ => &[],
        };
        write(&folder.path().join("data"), number, reader, images, shade);
    }
    folder
}

fn request(folder: &Path, parallel: &str, out: &str) -> TrainRequest {
    TrainRequest {
        model: format!("{}+images=24", folder.join("config.json").display()),
        parallel: parallel.into(),
        data: folder.join("data"),
        steps: 3,
        seq: SEQ,
        global_batch: 8,
        lr: 0.05,
        warmup: 0,
        lr_schedule: "constant".into(),
        optimizer: "sgd".into(),
        out: folder.join(out),
        ..TrainRequest::default()
    }
}

fn trained(request: &TrainRequest) -> Vec<f64> {
    let mut found = Figures::default();
    train(request, &mut found).unwrap_or_else(|why| panic!("{}: {why}", request.parallel));
    found.0
}

fn assert_near(own: &[f64], theirs: &[f64], what: &str) {
    assert_eq!(own.len(), theirs.len(), "{what}");
    let are_near = own.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= APART * b.abs());
    assert!(are_near, "{what}: {own:?}, {theirs:?}");
}

fn has_the_losses_of_one_device(reader: Reader, layouts: &[&str]) {
    let folder = folder(reader, 0.0);
    let alone = trained(&request(folder.path(), "mbs=4", "alone"));
    for (number, layout) in layouts.iter().enumerate() {
        let figures = trained(&request(folder.path(), layout, &format!("out{number}")));
        assert_near(&figures, &alone, layout);
    }
}

#[test]
fn every_layout_has_the_losses_of_one_device() {
    let layouts = [
        "dp=4,mbs=2",
        "tp=2,sp=true",
        "pp=4,schedule=zb-h1",
        "cp=2,cp_kind=ring",
        "cp=2,cp_kind=ulysses,recompute=full",
        "dp=2,tp=2,zero=3",
        "dp=2,pp=3,zero=1",
    ];
    has_the_losses_of_one_device(Reader::Pixtral, &layouts);
}

/// Rows of inner layers travel between stages that part the encoder from the first layers of the text model.
#[test]
fn rows_of_inner_layers_reach_the_text_on_every_layout() {
    let layouts = [
        "dp=2,ep=2,zero=1",
        "tp=2,sp=true,ep=2",
        "pp=4,schedule=zb-h1",
        "pp=2,schedule=interleaved-1f1b,vp=2",
        "cp=2,cp_kind=ring",
        "dp=2,tp=2,zero=3,recompute=full",
    ];
    has_the_losses_of_one_device(Reader::Qwen, &layouts);
}

#[test]
fn pixels_reach_the_loss() {
    for reader in [Reader::Pixtral, Reader::Qwen] {
        let [plain, shaded] = [0.0, 0.5].map(|shade| {
            let folder = folder(reader, shade);
            trained(&request(folder.path(), "mbs=4", "out"))
        });
        assert!((plain[0] - shaded[0]).abs() > 1e-4, "{plain:?} {shaded:?}");
    }
}

#[test]
fn a_run_goes_on_after_a_stop() {
    let folder = folder(Reader::Pixtral, 0.0);
    let whole = trained(&request(folder.path(), "dp=2", "whole"));
    let first = TrainRequest { steps: 2, save_every: 2, ..request(folder.path(), "dp=2", "parts") };
    let mut parts = trained(&first)[..4].to_vec();
    let again = TrainRequest { resume: Some(folder.path().join("parts")), ..request(folder.path(), "tp=2", "parts") };
    parts.extend(trained(&again));
    assert_near(&parts, &whole, "resumed");
}

#[test]
fn data_that_does_not_fit_is_refused() {
    let folder = folder(Reader::Pixtral, 0.0);
    let refused = |request: &TrainRequest| train(request, &mut Figures::default()).unwrap_err().to_string();
    let small = TrainRequest {
        model: request(folder.path(), "", "").model.replace("=24", "=20"),
        ..request(folder.path(), "mbs=1", "out")
    };
    let why = refused(&small);
    assert!(why.contains("has 24 patches of images, more than the 20 of a sequence"), "{why}");
    let why = refused(&request(folder.path(), "schedule=seq1f1b,pp=2,mbs=1", "out"));
    assert!(why.contains("cannot run on a slice of the sequence"), "{why}");
    let tokens = fs::read(folder.path().join("data/000.safetensors")).unwrap();
    fs::write(folder.path().join("data/000.safetensors"), &tokens[..tokens.len() - 100]).unwrap();
    let why = refused(&request(folder.path(), "mbs=1", "out"));
    assert!(why.contains("000.safetensors"), "{why}");
    let text = TrainRequest { data: folder.path().join("config.json"), ..request(folder.path(), "mbs=1", "out") };
    let why = refused(&text);
    assert!(why.contains("config.json"), "{why}");
}
