//! A validation runs the model without dropout, on every mesh and schedule, and on as much of the held-out text as is asked.

use ir::models::{Batch, from_config};
use ir::types::DType;
use meshwright::runtime::metrics::{EvalRecord, StepRecord};
use meshwright::runtime::reference::{MicroBatch, Reference, Tensor};
use meshwright::train::{Progress, Quiet, RunHeader, TrainReport, TrainRequest, train};
use std::fs;
use std::path::PathBuf;
use transforms::evaluation::evaluation;

/// A GPT-2 with one rate of dropout in all three places.
fn config(rate: f64) -> String {
    format!(
        r#"{{"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 16, "n_layer": 4, "n_head": 4,
        "embd_pdrop": {rate}, "attn_pdrop": {rate}, "resid_pdrop": {rate}}}"#
    )
}

/// A folder with text, and a config of each rate.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("meshwright-evaluation-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let text: String = (0..300).map(|n| format!("line {n}: {} quick brown foxes\n", n * n % 97)).collect();
        fs::write(path.join("text.txt"), text).unwrap();
        [0.0, 0.3].iter().for_each(|rate| fs::write(path.join(format!("{rate}.json")), config(*rate)).unwrap());
        Folder(path)
    }

    /// A run that learns nothing, under dropout of a rate.
    fn request(&self, rate: f64, mesh: &str) -> TrainRequest {
        TrainRequest {
            model: self.0.join(format!("{rate}.json")).display().to_string(),
            parallel: mesh.into(),
            data: self.0.join("text.txt"),
            out: self.0.join("out"),
            seq: 16,
            global_batch: 8,
            steps: 2,
            lr: 0.0,
            weight_decay: 0.0,
            eval_every: 1,
            ..TrainRequest::default()
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All validation losses and training losses of a run.
#[derive(Default)]
struct Losses {
    valid: Vec<f64>,
    train: Vec<f64>,
    batches: Vec<u64>,
}

impl Progress for Losses {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, record: &StepRecord) {
        self.train.push(record.loss);
    }
    fn evaluating(&mut self, batches: u64) {
        self.batches.push(batches);
    }
    fn batch_evaluated(&mut self, done: u64) {
        assert!(done >= 1 && done <= *self.batches.last().unwrap());
    }
    fn evaluated(&mut self, record: &EvalRecord) {
        self.valid.push(record.valid_loss);
    }
}

fn losses(request: &TrainRequest) -> (TrainReport, Losses) {
    let mut losses = Losses::default();
    let report = train(request, &mut losses).unwrap_or_else(|why| panic!("{}: {why}", request.parallel));
    (report, losses)
}

#[test]
fn dropout_does_nothing_in_a_validation() {
    let folder = Folder::new("dropout");
    for mesh in [
        "dp=1",
        "dp=2,tp=2,zero=3,recompute=full",
        "dp=2,tp=2,sp=true",
        "cp=2,dp=2",
        "pp=2,schedule=gpipe",
        "pp=2,tp=2,schedule=zb-h1",
        "pp=2,schedule=zb-v",
        "pp=2,schedule=seq1f1b",
        "pp=2,schedule=chimera",
        "pp=2,recompute=selective:mlp",
    ] {
        let (_, with) = losses(&folder.request(0.3, mesh));
        let (_, without) = losses(&folder.request(0.0, mesh));
        assert_eq!(with.valid, without.valid, "{mesh}");
        assert!(with.train.iter().zip(&without.train).all(|(a, b)| a != b), "{mesh}: training drops");
    }
}

/// The same batches give the same loss after a step that changed nothing.
#[test]
fn a_validation_depends_on_no_step() {
    let folder = Folder::new("steps");
    let request =
        TrainRequest { steps: 3, eval_batches: 2, final_eval_batches: Some(2), ..folder.request(0.3, "dp=2") };
    let (_, losses) = losses(&request);
    assert!(losses.valid.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", losses.valid);
}

#[test]
fn the_last_validation_is_as_long_as_it_may_be() {
    let folder = Folder::new("bound");
    let report = |final_eval_batches| {
        let (report, losses) = losses(&TrainRequest { final_eval_batches, ..folder.request(0.0, "dp=1") });
        (report.valid_share, *losses.batches.last().unwrap())
    };
    let (share, all) = report(Some(0));
    assert!(share == 1.0 && all > 3, "{share} {all}");
    assert_eq!(report(Some(256)), (1.0, all));
    assert_eq!(report(Some(3)), (3.0 / all as f64, 3));
    assert_eq!(report(Some(1)).1, 1);
    // In proportion to a run of two steps, but not less than four.
    assert_eq!(report(None).1, all.min(4));
    let request = TrainRequest { steps: 6, eval_every: 0, ..folder.request(0.0, "dp=1") };
    assert_eq!(train(&request, &mut Quiet).unwrap().valid_share, all.min(6) as f64 / all as f64);
}

/// The reference evaluator takes the model of an evaluation as the model without dropout.
#[test]
fn the_reference_evaluates_without_dropout() {
    let build = |rate| {
        let batch = Batch { batch: 2, seq: 16, dtype: DType::F32 };
        from_config(&config(rate)).unwrap().build(&batch).unwrap()
    };
    let ints = |step: i32| Tensor { dims: vec![2, 16], data: (0..32).map(|i| i * step % 16).collect::<Vec<i32>>() };
    let (tokens, positions, segments) = (ints(7), ints(1), ints(0));
    let inputs = [("tok", &tokens), ("lab", &positions), ("pos", &positions), ("seg", &segments)];
    let batch = [MicroBatch::<f64>::of_tokens(&inputs, "lab")];
    let loss = |model| Reference::<f64>::new(&model, 5).loss(&batch).unwrap();
    assert_eq!(loss(evaluation(&build(0.3))), loss(build(0.0)));
    assert_ne!(loss(build(0.3)), loss(build(0.0)));
}

/// Training, saving and validating in several processes, joined by a wire in memory, gives the bits of one.
#[test]
fn processes_train_save_and_evaluate_as_one() {
    let files = |folder: &Folder| {
        let step = fs::read_dir(folder.0.join("out/step-00000002")).unwrap();
        let mut files: Vec<_> = step.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
        files.sort();
        files
    };
    for (mesh, comm) in [("dp=2,tp=2,zero=3", "looped:2:5"), ("pp=2,dp=2", "looped:4"), ("cp=2,dp=2", "looped:3")] {
        let run = |comm: &str| {
            let folder = Folder::new(&comm.replace(':', "-"));
            let request = TrainRequest { save_every: 2, lr: 1e-3, comm: comm.into(), ..folder.request(0.3, mesh) };
            let (report, losses) = losses(&request);
            (report.run.place, (losses.valid, losses.train, files(&folder)))
        };
        let [(alone, one), (place, several)] = [run("threads"), run(comm)];
        assert!(one == several, "{mesh} in {comm}: {:?} are not {:?}", several.1, one.1);
        assert!(alone == "threads of this process" && place.ends_with("processes, looped in this one"), "{place}");
    }
    let refused = |comm: &str, mesh: &str| {
        let folder = Folder::new("refused");
        let request = TrainRequest { comm: comm.into(), ..folder.request(0.0, mesh) };
        train(&request, &mut Quiet).unwrap_err().to_string()
    };
    assert!(refused("looped:3", "dp=2").contains("2 devices into 3 processes"));
    assert!(refused("sockets", "dp=2").contains("--comm is threads, tcp, mpi"));
}
