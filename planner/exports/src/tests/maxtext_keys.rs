//! Files of MaxText.

use super::*;
use crate::maxtext::Devices;
use ir::options::Gather;

#[test]
fn degrees_of_maxtext_fill_a_node_from_the_inside() {
    let job = job(|parallel| (parallel.dp, parallel.tp, parallel.zero) = (16, 4, 3));
    let text = exported(&job, Target::Maxtext).text;
    for line in
        ["ici_tensor_parallelism: 4", "ici_fsdp_parallelism: 2", "dcn_fsdp_parallelism: 8", "ici_data_parallelism: 1"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn files_of_maxtext_are_read_back() {
    let mut job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.sp, parallel.pp) = (16, 2, true, 2);
        (parallel.zero, parallel.schedule, parallel.vp) = (3, "looped-bfs".into(), Some(2));
        parallel.recompute = "full".parse().unwrap();
    });
    job.config = Some(ir::models::preset("llama3-8b").unwrap().config.clone());
    let written = exported(&job, Target::Maxtext);
    assert_eq!(lost(&written), [""; 0], "{}", written.text);
    let devices = Some(Devices { count: 64, per_node: 8 });
    let read = maxtext::read(&written.text, devices).unwrap();
    assert_eq!(read.parallel, "dp=16,tp=2,pp=2,cp=1,sp=true,zero=3,schedule=looped-bfs,vp=2,mbs=1,recompute=full");
    assert_eq!((read.seq, read.global_batch, read.precision.as_str()), (Some(8192), Some(128), "bf16"));
    assert_eq!(ir::models::from_config(&read.model.unwrap()).unwrap(), job.config.unwrap());
    assert_eq!(read.warnings, [""; 0]);
}

/// Models that MaxText's keys state, and what reads them back.
#[test]
fn keys_state_models_of_maxtext_whole() {
    let names = [
        "llama2-7b",
        "llama3.1-8b",
        "mistral-7b",
        "qwen2.5-7b",
        "qwen3-8b",
        "mixtral-8x7b",
        "qwen3-30b-a3b",
        "gpt-oss-20b",
        "deepseek-v2",
        "deepseek-v3",
        "gpt3-175b",
    ];
    for name in names {
        let config = ir::models::preset(name).unwrap().config.clone();
        let job = Job { config: Some(config), ..job(|_| ()) };
        let notes = exported(&job, Target::Maxtext).notes;
        assert!(notes.iter().all(|note| note.key != "model"), "{name}: {notes:?}");
    }
    let config = ir::models::preset("gemma2-9b").unwrap().config.clone();
    let notes = exported(&Job { config: Some(config), ..job(|_| ()) }, Target::Maxtext).notes;
    assert!(notes.iter().any(|note| note.key == "model"));
}

#[test]
fn shares_of_a_batch_are_whole_after_rounding() {
    for (sequences, devices) in (1..400).flat_map(|sequences| [7, 12, 49, 96, 120, 132, 1000].map(|n| (sequences, n))) {
        let job = Job { global_batch: sequences, ..job(|parallel| (parallel.dp, parallel.tp) = (1, devices)) };
        let text = exported(&job, Target::Maxtext).text;
        let stated = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.parse::<f64>().ok()).unwrap();
        let pass = (stated("per_device_batch_size: ") * devices as f64) as u64;
        assert_eq!(pass * stated("gradient_accumulation_steps: ") as u64, sequences, "{sequences} on {devices}");
    }
}

#[test]
fn what_degrees_leave_is_filled() {
    let read = |text: &str, count, per_node| maxtext::read(text, Some(Devices { count, per_node }));
    let parallel = |text: &str| read(text, 64, 8).unwrap().parallel;
    let own = "per_device_batch_size: 2\nmodel_name: llama3-8b\n";
    assert!(parallel(own).starts_with("dp=64,tp=1,pp=1,cp=1,sp=false,zero=3,shard=8,"));
    let all = format!("{own}dcn_fsdp_parallelism: -1\ndcn_data_parallelism: 1\nici_tensor_parallelism: 4\n");
    assert!(parallel(&all).starts_with("dp=16,tp=4,pp=1,cp=1,sp=false,zero=3,mbs=8,"), "{}", parallel(&all));
    // A slice of TPUs is no node.
    let slice = format!("{own}ici_fsdp_parallelism: 64\n");
    assert!(parallel(&slice).starts_with("dp=64,tp=1,pp=1,cp=1,sp=false,zero=3,mbs=2,"));
    let wrong = |text: &str| read(text, 64, 8).unwrap_err().to_string();
    assert!(
        wrong("ici_tensor_parallelism: 3\n").contains("are 3 in all, of"),
        "{}",
        wrong("ici_tensor_parallelism: 3\n")
    );
    assert!(maxtext::read(own, None).unwrap_err().to_string().contains("give --gpus"));
    assert_eq!(
        wrong("per_device_batchsize: 2\n"),
        "MaxText has no key per_device_batchsize (did you mean `per_device_batch_size`?)"
    );
    assert!(wrong("per_device_batch_size: 0\n").contains("0 sequences a pass"));
    assert!(wrong("opt_type: muon\n").contains("predictions know adamw and sgd"));
}

#[test]
fn words_of_a_command_are_keys() {
    let script = "#!/bin/bash\nexport RUN_NAME=x\nout_dir=/tmp\npython3 -m maxtext.trainers.pre_train.train base.yml \\\n    \
                  model_name=llama2-7b per_device_batch_size=1 ici_fsdp_parallelism=8 dcn_data_parallelism=2 remat_policy=full\n";
    let read = maxtext::read(script, Some(Devices { count: 16, per_node: 8 })).unwrap();
    assert_eq!(read.parallel, "dp=16,tp=1,pp=1,cp=1,sp=false,zero=3,shard=8,mbs=1,recompute=full");
    assert_eq!((read.model.as_deref(), read.global_batch), (Some("llama2-7b"), Some(16)));
    assert_eq!(read.warnings, ["not known: MaxText has no key out_dir"]);
}

#[test]
fn values_of_another_kind_are_refused() {
    let read = |text: &str| {
        let own = "model_name: llama3-8b\nici_fsdp_parallelism: 8\n";
        maxtext::read(&format!("{own}{text}\n"), Some(Devices { count: 8, per_node: 8 }))
    };
    for (text, told) in [
        ("per_device_batch_size: abc", "it takes a number"),
        ("per_device_batch_size: [4]", "it takes one value"),
        ("per_device_batch_size: .nan", "it takes a number"),
        ("max_target_length: 4k", "it takes a whole number"),
        ("max_target_length: null", "it takes a whole number"),
        ("gradient_accumulation_steps: 0", "begins at 1"),
        ("max_target_length: -4096", "begins at 1"),
        ("base_num_decoder_layers: 61\nnum_layers_per_pipeline_stage: 29", "29 does not divide 61 layers"),
        ("dtype: [bfloat16]", "it takes one value"),
        ("shard_optimizer_over_data: maybe", "it is true or false"),
        ("ici_tensor_parallelism: null", "from 1 to 65535, or -1"),
        ("dcn_fsdp_parallelism: -1\ndcn_data_parallelism: -1", "so is another axis"),
        ("override_model_config: true", "without model_name"),
        ("per_device_batch_size: ${PDB}", "which only a shell knows"),
        ("run_name: a\n---\nrun_name: b", "2 documents"),
    ] {
        let wrong = read(text).unwrap_err().to_string();
        assert!(wrong.contains(told), "{text}: {wrong}");
    }
    assert!(read("optimizer_memory_host_offload: yes").unwrap().parallel.contains("offload_optimizer=true"));
    assert_eq!(read("max_target_length: 4096.0").unwrap().seq, Some(4096));
    let dense = "base_num_decoder_layers: 61\nfirst_num_dense_layers: 3\nnum_layers_per_pipeline_stage: 29";
    assert!(read(dense).is_ok());
    for (text, told) in [
        ("remat_policy: minimal_flash", "it is read as minimal_with_context"),
        ("remat_policy: custom", "nothing is predicted to be recomputed"),
        ("attention: dot_product", "attention=dot_product touches attention"),
        ("capacity_factor: 1.25", "capacity_factor=1.25 touches experts"),
        ("weight_dtype: float16", "weight_dtype=float16 touches parameters"),
    ] {
        let warnings = read(text).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(told)), "{text}: {warnings:?}");
    }
    // A key that begins like a command's name makes no script of a file.
    assert!(read("python_path: /usr").unwrap_err().to_string().contains("no key python_path"));
}

#[test]
fn keys_that_maxtext_lacks_are_lost() {
    let lost_of =
        |change: fn(&mut ParallelConfig)| lost(&exported(&Job { experts: 8, ..job(change) }, Target::Maxtext));
    assert_eq!(lost_of(|parallel| (parallel.dp, parallel.tp, parallel.etp) = (8, 2, 1)), ["etp"]);
    assert_eq!(lost_of(|parallel| (parallel.dp, parallel.ep) = (4, 8)), ["ep"]);
    assert_eq!(lost_of(|parallel| (parallel.dp, parallel.zero, parallel.shard) = (8, 1, Some(4))), ["shard"]);
    assert_eq!(lost_of(|parallel| (parallel.dp, parallel.zero, parallel.gather) = (8, 3, Gather::Step)), ["gather"]);
    let narrow = Job { recipe: Recipe { master: 0.0, ..Recipe::bf16() }, ..job(|_| ()) };
    assert!(exported(&narrow, Target::Maxtext).text.contains("weight_dtype: \"bfloat16\""));
    assert!(lost(&exported(&narrow, Target::Deepspeed)).contains(&"master"));
    let nameless = exported(&job(|_| ()), Target::Maxtext);
    assert!(nameless.notes.iter().any(|note| note.key == "model"));
    let documents = exported(&Job { documents: true, ..job(|_| ()) }, Target::Deepspeed);
    assert!(documents.notes.iter().any(|note| note.key == "lengths"));
}
