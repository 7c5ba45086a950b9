//! Flags of Megatron-LM.

use super::*;

#[test]
fn flags_of_a_dense_layout_are_read_back() {
    let job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero) = (4, 4, 4, true, 1);
        (parallel.schedule, parallel.vp) = ("interleaved-1f1b".into(), Some(2));
        parallel.recompute = "selective:core_attn+mlp".parse().unwrap();
    });
    let written = exported(&job, Target::Megatron);
    assert_eq!(written.notes, []);
    assert!(written.text.contains("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"), "{}", written.text);
    let read = megatron::read(&written.text, None).unwrap();
    assert_eq!(
        read.parallel,
        "tp=4,pp=4,cp=1,sp=true,schedule=interleaved-1f1b,vp=2,zero=1,dp_overlap=true,tp_overlap=true,\
         recompute=selective:core_attn+mlp,mbs=1"
    );
    assert_eq!((read.seq, read.global_batch), (Some(8192), Some(128)));
    assert_eq!((read.precision.as_str(), read.optimizer.as_str(), read.warnings.len()), ("bf16", "adamw", 0));
}

/// Megatron-Bridge has a field for each flag, in the place that its classes have it.
#[test]
fn flags_of_megatron_are_fields_of_its_bridge() {
    let job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.sp, parallel.zero) = (4, 4, true, 2);
        parallel.recompute = "selective:core_attn+mlp".parse().unwrap();
        parallel.rank_order = ["dp", "pp", "cp", "tp"].map(str::to_string).to_vec().into();
    });
    let written = exported(&job, Target::MegatronBridge);
    for line in [
        "cfg.model.tensor_model_parallel_size = 4",
        "cfg.model.recompute_modules = [\"core_attn\", \"mlp\"]",
        "cfg.dist.use_megatron_fsdp = True",
        "cfg.ddp.data_parallel_sharding_strategy = \"optim_grads\"",
        "os.environ.pop(\"CUDA_DEVICE_MAX_CONNECTIONS\", None)",
        "cfg.model.hidden_dropout = 0.0",
    ] {
        assert!(written.text.contains(&format!("    {line}\n")), "{line}: {}", written.text);
    }
    assert!(!written.text.contains("use_tp_pp_dp_mapping"), "{}", written.text);
    assert!(written.notes.iter().any(|note| note.key == "rank_order" && note.grade == Grade::Lost));
    assert!(written.assumed.iter().all(|assumed| assumed.environment.is_empty() && !assumed.flags.is_empty()));
}

/// Nodes that NVLink joins have another exchange of tokens, and are one segment.
#[test]
fn racks_that_nvlink_joins_are_segments() {
    let mut rack = job(|parallel| (parallel.dp, parallel.ep, parallel.zero) = (144, 16, 1));
    (rack.per_node, rack.domain, rack.experts, rack.capability, rack.launch) = (4, 72, 64, Some(10), Launch::Slurm);
    let text = exported(&rack, Target::Megatron).text;
    for line in [
        "#SBATCH --nodes=36\n",
        "#SBATCH --segment=18\n",
        "--moe-flex-dispatcher-backend hybridep\n",
        "export NVLINK_DOMAIN_SIZE=72\n",
        "export NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=16\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    (rack.per_node, rack.domain) = (8, 8);
    let text = exported(&rack, Target::Megatron).text;
    assert!(text.contains("backend deepep\n") && !text.contains("segment"), "{text}");
}

/// The table of Megatron-LM says of each flag of an export that it is written.
#[test]
fn flags_of_exports_are_in_the_table() {
    let mut jobs = [
        job(|parallel| {
            (parallel.dp, parallel.tp, parallel.pp, parallel.cp, parallel.sp, parallel.zero) = (2, 2, 2, 2, true, 1)
        }),
        job(|parallel| (parallel.dp, parallel.zero, parallel.ep, parallel.offload_optimizer) = (8, 3, 4, true)),
        job(|parallel| parallel.recompute = "full:4".parse().unwrap()),
    ];
    jobs[1].experts = 8;
    for precision in ["bf16", "fp16", "fp8-tensor", "f32"] {
        for written in
            jobs.iter().map(|job| exported(&Job { precision: precision.into(), ..job.clone() }, Target::Megatron))
        {
            let lines = written.text.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
            for flag in lines.filter(|line| !line.starts_with("rdzv")).filter_map(|line| line.split(' ').next()) {
                assert!(MEGATRON.writes(flag), "--{flag}");
            }
        }
    }
}

/// Graphs of a prediction are written where Megatron-LM takes them. Read back without them, launches take time.
#[test]
fn graphs_are_written_and_read() {
    let mut replayed = job(|parallel| (parallel.dp, parallel.zero) = (8, 1));
    replayed.stack = "megatron-core-2026".into();
    replayed.traits = Stack::find("megatron-core-2026").unwrap().traits;
    let written = exported(&replayed, Target::Megatron);
    assert!(written.text.contains("--cuda-graph-modules attn mlp\n") && written.notes.is_empty(), "{}", written.text);
    let stack = |text: &str| megatron::read(text, None).unwrap().stack;
    assert_eq!(stack(&written.text).as_deref(), Some("megatron-core-2026"));
    let without = written.text.replace("    --cuda-graph-impl transformer_engine\n", "");
    assert_eq!(stack(&without).as_deref(), Some("megatron-core-2026+launch.graphs=none"));
    replayed.traits.launch.graphs = Graphs::None;
    assert!(!exported(&replayed, Target::Megatron).text.contains("--cuda-graph"));
}

/// Graphs of layers without experts are written where launches would take a noticeable share of the step.
#[test]
fn graphs_of_small_models_are_written() {
    let mut small = job(|parallel| (parallel.dp, parallel.zero) = (8, 1));
    assert!(!exported(&small, Target::Megatron).text.contains("--cuda-graph"));
    small.launches = 0.05;
    let written = exported(&small, Target::Megatron);
    assert!(written.text.contains("--cuda-graph-modules attn mlp\n") && written.notes.is_empty(), "{}", written.text);
    assert_eq!(megatron::read(&written.text, None).unwrap().warnings, [""; 0]);
    small.parallel.recompute = "full".parse().unwrap();
    let written = exported(&small, Target::Megatron);
    assert!(!written.text.contains("--cuda-graph") && written.notes[0].key == "stack", "{}", written.text);
}

/// Exchanges that Megatron-LM does not hide are noted, with what they cost.
#[test]
fn exchanges_that_are_not_hidden_have_a_size() {
    let mut job = job(|parallel| (parallel.dp, parallel.ep, parallel.zero) = (8, 8, 1));
    (job.experts, job.precision) = (8, "f32".into());
    job.traits = Stack::find("megatron-core-2026").unwrap().traits;
    let size = Size { seconds: 0.5, bytes: 0.0 };
    let written = export(&job, Target::Megatron, &|instead| {
        assert_eq!(instead, &Instead::Traits("hides=tp|dp|cp|p2p|update".into()));
        Some(size)
    });
    assert!(!written.text.contains("--overlap-moe") && written.text.contains("(+500 ms a step, +0.0 GiB)"));
    job.precision = "bf16".into();
    assert!(exported(&job, Target::Megatron).text.contains("--overlap-moe-expert-parallel-comm\n"));
}

#[test]
fn uneven_stages_are_a_layout() {
    let mut job = job(|parallel| (parallel.pp, parallel.dp) = (4, 2));
    for (stage, layers) in job.stages.iter_mut().zip([7, 9, 9, 7]) {
        stage.layers = layers;
    }
    let written = exported(&job, Target::Megatron);
    assert!(written.text.contains("--pipeline-model-parallel-layout 'Et*7|t*9|t*9|t*7L'"), "{}", written.text);
    let read = megatron::read(&written.text, None).unwrap();
    assert!(read.parallel.contains("stages=8,17,26"), "{}", read.parallel);
}

#[test]
fn layouts_of_megatron_are_written_out() {
    let read = |layout: &str| {
        let text = format!("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout {layout}");
        megatron::read(&text, None).map(|read| read.parallel)
    };
    assert_eq!(read("'Ettt|(tt|)*2t,L'").unwrap(), "pp=4,stages=4,6,8,zero=0,dp_overlap=false");
    // A block joins the layers to those that predict further tokens, and is with the first of these.
    assert_eq!(read("'Ett|tt|t|tmL'").unwrap(), "pp=4,stages=3,5,6,zero=0,dp_overlap=false");
    assert_eq!(read("'Et|t|m|mL'").unwrap(), "pp=4,stages=2,3,5,zero=0,dp_overlap=false");
    assert!(read("Et*|t").unwrap_err().to_string().contains("no number"));
    assert!(read("'E(t|t'").unwrap_err().to_string().contains("no end"));
}

#[test]
fn mistakes_in_flags_are_named() {
    let wrong = |text: &str| megatron::read(text, None).unwrap_err().to_string();
    assert_eq!(
        wrong("--tensor-model-parallel-size four"),
        "--tensor-model-parallel-size four: it takes a whole number"
    );
    assert_eq!(wrong("--recompute-granularity"), "--recompute-granularity has no value");
    assert!(wrong("--cp-comm-type a2a+a2a").contains("a2a+a2a"));
    assert!(wrong("--seq-length '4096").contains("no end"));
    assert!(wrong("--tensor-parallel-size 4").contains("no flag --tensor-parallel-size (did you mean"));
    assert!(wrong("--moe-token-dispatcher-type deepep").contains("one of allgather"));
    assert_eq!(wrong("--bf16 --fp16"), "--bf16 and --fp16: Megatron-LM takes one of them");
    assert!(wrong("train.sh").contains("no flags"));
    assert!(wrong("--seq-length $SEQ").contains("--seq-length ${SEQ}: it takes a whole number"));
}

#[test]
fn variables_of_a_script_are_expanded() {
    let script = r#"
        TP_SIZE=4
        SEQ_LENGTH=${2:-8192}
        MODEL_PARALLEL_ARGS=(
            --tensor-model-parallel-size ${TP_SIZE}   # of a node
            --recompute-granularity selective --recompute-modules core_attn mlp
        )
        TRAIN_ARGS="
            --seq-length $SEQ_LENGTH \
            --bf16"
        torchrun --nproc_per_node 8 pretrain_gpt.py "${MODEL_PARALLEL_ARGS[@]}" $TRAIN_ARGS
    "#;
    let read = megatron::read(script, None).unwrap();
    assert_eq!(read.parallel, "tp=4,zero=0,dp_overlap=false,recompute=selective:core_attn+mlp");
    assert_eq!((read.seq, read.precision.as_str(), read.grad_dtype.as_deref()), (Some(8192), "bf16", Some("f32")));
}

#[test]
fn a_script_may_run_other_programs() {
    let script = "ARGS=( \"--fp8-format hybrid\" '--bf16' )\ndocker run --ipc=host image\ntorchrun --nproc-per-node 8 pretrain_gpt.py ${ARGS[@]} --seq-length 64\n";
    let read = megatron::read(script, None).unwrap();
    assert_eq!((read.precision.as_str(), read.seq), ("fp8-delayed", Some(64)));
    assert!(read.warnings.contains(&"not known: Megatron-LM has no flag --ipc".to_string()), "{:?}", read.warnings);
    assert!(megatron::read("--ipc=host --bf16", None).is_err());
}

#[test]
fn layers_of_ends_are_divided_as_megatron_does() {
    let read = |flags: &str| {
        megatron::read(&format!("--num-layers 40 --pipeline-model-parallel-size 4 {flags}"), None)
            .map(|read| read.parallel)
    };
    let stages = |flags: &str| {
        read(flags).unwrap().split(",stages=").nth(1).map(|rest| rest.split(",zero").next().unwrap().to_string())
    };
    assert_eq!(
        stages("--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6").as_deref(),
        Some("7,21,35")
    );
    assert_eq!(stages("--decoder-first-pipeline-num-layers 4").as_deref(), Some("5,17,29"));
    for wrong in [
        "--pipeline-model-parallel-size 0",
        "--pipeline-model-parallel-size 1048577",
        "--decoder-first-pipeline-num-layers 41",
        "--decoder-first-pipeline-num-layers 6 --num-virtual-stages-per-pipeline-rank 0",
        "--decoder-first-pipeline-num-layers 6 --pipeline-model-parallel-size 65536 --num-virtual-stages-per-pipeline-rank 65536",
        "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6 --pipeline-model-parallel-size 2",
        "--decoder-first-pipeline-num-layers 18446744073709551615 --decoder-last-pipeline-num-layers 1",
        "--num-layers-per-virtual-pipeline-stage 0",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    let both = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split";
    assert!(read(both).unwrap_err().to_string().contains("42 layers and ends do not divide by 4"));
    let read = megatron::read(&format!("--num-layers 38 --pipeline-model-parallel-size 4 {both}"), None).unwrap();
    assert!(read.parallel.contains("stages=10,20,30"), "{}", read.parallel);
}
