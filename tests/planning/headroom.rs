//! The chance to fit as a price: an answer states the best step at other chances, and warns where little memory costs much time.

use cost::Cluster;
use meshwright::autotune::explain;
use meshwright::autotune::plan::{CHANCES, find};
use meshwright::estimator::Estimator;
use meshwright::{PlanReport, PlanRequest, Planned};

/// A GPT of 39 billion parameters: 48 layers of 8192 with 64 heads.
const MODEL: &str = r#"{"model_type":"gpt2","name":"gpt-39b","n_embd":8192,"n_layer":48,"n_head":64,"n_inner":32768,"n_positions":1024,"vocab_size":51200,"tie_word_embeddings":true,"resid_pdrop":0.0,"embd_pdrop":0.0,"attn_pdrop":0.0}"#;

/// Eight V100 of 16 GB a node (NVIDIA, V100 data sheet), and 25 Gb/s of Ethernet between nodes.
fn small_devices() -> Estimator {
    let mut cluster = Cluster::find("v100-dgx2").unwrap();
    cluster.name = "small".to_string();
    cluster.device.memory = 16_945_000_000;
    let [node, network] = cluster.links.as_mut_slice() else { panic!("two levels") };
    node.joins = 8;
    network.bandwidth = 25e9 / 8.0 / 8.0;
    Estimator::new().with_cluster(cluster)
}

fn request(headroom: f64) -> PlanRequest {
    let stack = "megatron-2022".to_string();
    let precision = "fp16".to_string();
    PlanRequest { stack, precision, headroom, tie: 0.0, ..PlanRequest::new(MODEL, "small", 64, 1024, 1024) }
}

fn planned(estimator: &Estimator, request: &PlanRequest) -> PlanReport {
    let found = find(estimator, request, &|_| {}).unwrap();
    match explain::plan(estimator, request, found).unwrap() {
        Planned::Best(plan) => *plan,
        Planned::Infeasible(none) => panic!("{none}"),
    }
}

/// Devices that a model nearly fills: a few per cent of memory more let another degree stay within a node.
#[test]
fn little_memory_that_costs_much_time_is_named() {
    let estimator = small_devices();
    let plan = planned(&estimator, &request(5.0));
    let chances = &plan.search.as_ref().unwrap().chances;
    assert_eq!(chances.iter().map(|at| at.chance).collect::<Vec<_>>(), CHANCES);
    assert_eq!(chances[0].parallel, plan.chosen.parallel);
    assert!(chances.windows(2).all(|pair| pair[1].step_time_s <= pair[0].step_time_s), "{chances:?}");
    assert!(chances.iter().all(|at| at.chance_to_fit >= at.chance), "{chances:?}");
    assert!(chances[3].gain > 0.9, "{chances:?}");
    let text = plan.explanation(100);
    assert!(text.contains("CHANCE TO FIT") && text.contains("warning   "), "{text}");
    assert!(text.contains("warning   --headroom 50: "), "{text}");
    // Each row is what a plan with its headroom finds.
    for at in &chances[1..] {
        let other = find(&estimator, &request(100.0 * (1.0 - at.chance)), &|_| {}).unwrap();
        let seconds = other.best[0].predicted.step_time_s;
        assert!((at.step_time_s / seconds - 1.0).abs() < 0.021, "{at:?} {seconds}");
    }
}

/// The plan is the best one at all chances if memory does not decide, and no table says so.
#[test]
fn memory_that_is_left_costs_nothing() {
    let request = PlanRequest::new("llama3.2-1b", "h100", 8, 4096, 64);
    let plan = planned(&Estimator::new(), &request);
    let chances = &plan.search.as_ref().unwrap().chances;
    assert!(chances.len() == CHANCES.len() && chances.iter().all(|at| at.parallel == plan.chosen.parallel));
    assert!(!plan.explanation(100).contains("CHANCE TO FIT"));
    let margin = PlanRequest { memory_margin: Some(0.1), ..request };
    assert!(planned(&Estimator::new(), &margin).search.unwrap().chances.is_empty());
}

/// A request for a lower chance states what a higher one takes.
#[test]
fn higher_chances_are_stated_too() {
    let estimator = small_devices();
    let plan = planned(&estimator, &request(50.0));
    let chances = plan.search.unwrap().chances;
    let [certain, .., even] = chances.as_slice() else { panic!("{chances:?}") };
    assert!(certain.gain < -1.0 && even.gain == 0.0, "{chances:?}");
}
