//! Files of DeepSpeed.

use super::*;

fn read(text: &str, gpus: Option<u64>) -> Result<Present, FlagError> {
    deepspeed_file::read(text, gpus)
}

#[test]
fn files_of_deepspeed_are_read_back() {
    let job = job(|parallel| {
        (parallel.dp, parallel.zero, parallel.mbs, parallel.offload_optimizer) = (8, 2, 2, true);
        parallel.dp_overlap = Some(true);
    });
    let written = exported(&job, Target::Deepspeed).text;
    for gpus in [None, Some(8)] {
        let read = read(&written, gpus).unwrap();
        assert_eq!(read.parallel, "dp=8,tp=1,mbs=2,zero=2,dp_overlap=true,offload_optimizer=true");
        assert_eq!((read.global_batch, read.precision.as_str()), (Some(128), "bf16"));
        // ZeRO-2 keeps gradients in bf16 and sends them in f32, as the stack does.
        assert_eq!(read.grad_dtype, None);
        assert_eq!(read.warnings, [""; 0]);
    }
}

#[test]
fn one_size_of_a_batch_follows_from_the_others() {
    let parallel = |text: &str, gpus| read(text, gpus).map(|read| (read.parallel, read.global_batch));
    let micro = r#"{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}"#;
    assert_eq!(parallel(micro, Some(8)).unwrap(), ("dp=8,tp=1,mbs=2,zero=0,dp_overlap=false".into(), Some(64)));
    let all = r#"{"train_batch_size": 64, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 3}}"#;
    assert_eq!(parallel(all, Some(8)).unwrap(), ("dp=8,tp=1,mbs=2,zero=3,dp_overlap=true".into(), Some(64)));
    let filled_in = r#"{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "overlap_comm": "auto"}}"#;
    assert_eq!(parallel(filled_in, Some(8)).unwrap(), ("dp=8,tp=1,zero=2,dp_overlap=false".into(), None));
    let wrong = r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}"#;
    assert!(read(wrong, Some(8)).unwrap_err().to_string().contains("train_batch_size is 64, but 2 sequences times 2"));
    assert!(read(r#"{"train_micro_batch_size_per_gpu": 0}"#, None).unwrap_err().to_string().contains("begin at 1"));
}

#[test]
fn keys_that_deepspeed_ignores_are_told() {
    let ignored = read(r#"{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}"#, Some(8)).unwrap();
    let told = "not known: DeepSpeed ignores zero_optimisation (did you mean `zero_optimization`?)";
    assert_eq!(ignored.warnings, [told]);
    let wrong = |text: &str| read(text, Some(8)).unwrap_err().to_string();
    assert_eq!(
        wrong(r#"{"zero_optimization": {"stages": 2}}"#),
        "DeepSpeed has no key zero_optimization.stages (did you mean `zero_optimization.stage`?)"
    );
    assert!(wrong(r#"{"zero_optimization": {"stage": 4}}"#).contains("takes one of 0, 1, 2, 3"));
    assert!(wrong(r#"{"optimizer": {"type": "Lamb"}}"#).contains("predictions know Adam, AdamW and SGD"));
    assert!(wrong(r#"{"train_batch_size": "eight"}"#).contains("it takes a whole number"));
    assert!(wrong("[1]").contains("no object") && wrong("{").contains("no JSON"));
    let elastic = read(r#"{"elasticity": {"enabled": true}}"#, Some(8)).unwrap();
    assert!(elastic.warnings[0].contains("touches the batch"), "{:?}", elastic.warnings);
    let hpz = read(r#"{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}"#, Some(8)).unwrap();
    assert!(hpz.warnings[0].contains("zero_hpz_partition_size=8 touches dp communication"), "{:?}", hpz.warnings);
}

#[test]
fn values_of_another_kind_are_refused() {
    for (text, told) in [
        (r#"{"zero_optimization": 3}"#, "zero_optimization is 3: it is a section"),
        (r#"{"bf16": true}"#, "bf16 is true: it is a section"),
        (r#"{"zero_optimization": {"offload_optimizer": "cpu"}}"#, "zero_optimization.offload_optimizer is \"cpu\""),
        (r#"{"bf16": {"enabled": "maybe"}}"#, "bf16.enabled is \"maybe\": it is true or false"),
        (r#"{"bf16": {"enabled": true}, "fp16": {"enabled": true}}"#, "takes one of them"),
        (r#"{"train_batch_size": 64, "gradient_accumulation_steps": 3}"#, "8 times 3 does not divide"),
        (r#"{"tensor_parallel": {"autotp_size": 3}}"#, "does not divide 8 devices"),
        (
            r#"{"bf16": {"enabled": 1}, "data_types": {"grad_accum_dtype": "fp64"}}"#,
            "predictions know fp32, bf16 and fp16",
        ),
    ] {
        let wrong = read(text, Some(8)).unwrap_err().to_string();
        assert!(wrong.contains(told), "{text}: {wrong}");
    }
    assert_eq!(read(r#"{"bf16": {"enabled": "true"}}"#, Some(8)).unwrap().precision, "bf16");
    assert!(read(r#"{"zero_optimization": {"stage": "3"}}"#, Some(8)).unwrap().parallel.contains("zero=3"));
    let momentum = r#"{"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}}"#;
    assert_eq!(read(momentum, Some(8)).unwrap().optimizer, "momentum");
    let shared = r#"{"train_batch_size": 32, "sequence_parallel_size": 2}"#;
    assert!(read(shared, Some(8)).unwrap().parallel.starts_with("dp=4,tp=1,cp=2,cp_kind=ulysses,mbs=8,"));
    let filled_in = read(r#"{"zero_optimization": {"stage": "auto"}}"#, Some(8)).unwrap();
    assert!(filled_in.warnings[0].contains("zero_optimization.stage is filled in by another program"));
    let many: String = (0..40).map(|nth| format!("\"k{nth}\": 1,")).collect();
    let told = read(&format!("{{{many} \"zero_optimization.stage\": 3}}"), Some(8)).unwrap().warnings;
    assert_eq!((told.len(), told.last().unwrap().as_str()), (17, "not known: DeepSpeed ignores 25 more"));
}
