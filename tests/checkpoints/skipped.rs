//! A step whose gradient norm is not finite changes no parameter and no state on any rank, and the run goes on as if it had
//! not been.

use super::configurations::{bits, executor_of, models};
use super::runs::{Folder, data_files, text};
use ir::optimizer::{Optimizer, OptimizerKind};
use meshwright::runtime::exec::{Executor, StepInput};
use serde_json::Value;

/// The optimizers: with and without states, with and without clipping.
fn optimizers() -> [Optimizer; 6] {
    let sgd = |momentum| OptimizerKind::Sgd { momentum, nesterov: momentum > 0.0, weight_decay: 0.1 };
    [
        Optimizer::default(),
        Optimizer { clip: None, ..Optimizer::default() },
        Optimizer { kind: sgd(0.9), clip: None },
        Optimizer { kind: sgd(0.0), clip: Some(1.0) },
        Optimizer { kind: OptimizerKind::muon(), clip: None },
        Optimizer { kind: OptimizerKind::muon(), clip: Some(1.0) },
    ]
}

/// Runs a step, and says whether its update was skipped.
fn is_skipped(executor: &mut Executor, input: StepInput) -> bool {
    executor.step(input).expect("no rank failed").is_skipped()
}

/// Three steps, of which the second overflows, are the two others: for factors of the loss that make the gradient infinite, no
/// number, and finite with a sum of squares that is not.
fn goes_on(mesh: &str) {
    let config = &models()[0];
    for optimizer in optimizers() {
        let executor = || executor_of(config, mesh, 1, optimizer.clone());
        let (mut unbroken, input) = executor();
        let at = |step, update, loss_scale| StepInput { step, update, loss_scale, ..input.clone() };
        assert!(!is_skipped(&mut unbroken, at(1, 1, 1.0)));
        let after_one = bits(&mut unbroken);
        assert!(!is_skipped(&mut unbroken, at(2, 2, 1.0)));
        let after_two = bits(&mut unbroken);
        assert_ne!(after_one, after_two);
        for scale in [f32::INFINITY, f32::NAN, 1e30] {
            let (mut broken, _) = executor();
            assert!(!is_skipped(&mut broken, at(1, 1, 1.0)));
            assert!(is_skipped(&mut broken, at(2, 2, scale)), "{mesh}, {optimizer:?}: {scale}");
            assert!(bits(&mut broken) == after_one, "{mesh}, {optimizer:?}: a step of {scale} changed the state");
            assert!(!is_skipped(&mut broken, at(3, 2, 1.0)));
            assert!(bits(&mut broken) == after_two, "{mesh}, {optimizer:?}: a step of {scale} left a trace");
        }
    }
}

#[test]
fn one_device_goes_on() {
    goes_on("");
}

#[test]
fn three_axes_go_on() {
    goes_on("dp=2,tp=2,pp=2");
}

#[test]
fn shards_of_states_and_parameters_go_on() {
    goes_on("dp=2,zero=1");
    goes_on("dp=4,zero=3");
}

#[test]
fn cut_sequences_go_on() {
    goes_on("tp=2,sp=true");
    goes_on("cp=2");
}

/// A first step of 1e30 spoils the parameters, so that no later gradient is finite.
#[test]
fn a_run_counts_skipped_steps_within_its_budget() {
    let folder = Folder::new();
    folder.write("text.txt", &text());
    let options = "--data text.txt --seq 16 --global-batch 8 --steps 9 --eval-every 0 --save-every 1 --keep-last 9";
    let train = format!("train tiny-gpt2 {options} --optimizer sgd --clip 0 --lr 1e30 --warmup 0");
    let ends = |command: &str, message: &str| {
        let output = folder.run(command);
        let status = output.status.code();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(status, Some(6), "{said}");
        assert!(said.contains("error[MW0706]") && said.contains(message), "{said}");
        said
    };
    let said = ends(&format!("{train} --skip-nonfinite 2"), "step 4: ");
    assert!(said.contains("2 steps were skipped before") && said.contains("step 3 was skipped"), "{said}");
    assert_eq!(data_files(&folder.path("out/step-00000001")), data_files(&folder.path("out/step-00000003")));
    let records: Vec<Value> = folder
        .read("out/metrics.jsonl")
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let skipped: Vec<&Value> = records.iter().map(|record| &record["skipped"]).collect();
    assert_eq!(skipped, [false, true, true, true]);

    // Earlier skipped steps count in a resumed run, whose budget may change.
    ends("train --resume --skip-nonfinite 2", "step 4: ");
    ends("train --resume --skip-nonfinite 4", "step 6: ");
}
