//! Exports of configurations, and flags that are read back.

use super::flag_table::{FlagTable, MEGATRON, NANOTRON, TORCHTITAN, TORCHTITAN_TOML};
use super::torchtitan_file::Form;
use super::*;
use cost::{Recipe, Stack};
use ir::options::ParallelConfig;

/// The export of a job whose notes have no sizes.
fn exported(job: &Job, target: Target) -> Export {
    export(job, target, &|_| None)
}

fn job(change: impl FnOnce(&mut ParallelConfig)) -> Job {
    let mut parallel = ParallelConfig::default();
    change(&mut parallel);
    let stages = parallel.pp * u64::from(parallel.vp.unwrap_or(1));
    let layers = 32 / stages;
    let stage = |nth| Stage { embedding: nth == 0, layers, further: 0, head: nth + 1 == stages };
    Job {
        model: "llama3-8b".into(),
        adapters: None,
        seq: 8192,
        global_batch: 128,
        precision: "bf16".into(),
        optimizer: "adamw".into(),
        stages: (0..stages).map(stage).collect(),
        sets_stages: false,
        experts: 0,
        kv_heads: 8,
        per_node: 8,
        domain: 8,
        config: None,
        capacity: None,
        traits: Stack::find("megatron-core-2025").unwrap().traits,
        recipe: Recipe::bf16(),
        stack: "megatron-core-2025".into(),
        capability: Some(9),
        launch: Launch::default(),
        predicted: "1.60 s a step".into(),
        order: None,
        parallel,
    }
}

fn lost(export: &Export) -> Vec<&'static str> {
    export.notes.iter().filter(|note| note.grade == Grade::Lost).map(|note| note.key).collect()
}

#[test]
fn adapters_are_left_to_the_framework() {
    let adapted = Job { adapters: Some("16,q,v".into()), ..job(|_| ()) };
    for (name, target) in Target::ALL {
        let export = exported(&adapted, target);
        assert!(lost(&export).contains(&"lora"), "{name}");
        assert_eq!(export.text.contains("lora=16,q,v"), target.comment().is_some(), "{name}");
    }
}

/// Names that end the comment which they stand in, in some language.
const HOSTILE: [&str; 6] = [
    "x\ntouch pwned",
    "x\r\n$(touch pwned)",
    "x\u{2028}import os",
    "x\u{85}dp: 1",
    "\u{1b}]0;pwned\u{7}",
    "\"\"\"\nimport os\n\"\"\"",
];

/// An export is its comments and a body; whatever a job is named, the body stays the same.
#[test]
fn a_name_stays_in_its_comment() {
    let body = |job: &Job, target| {
        let export = exported(job, target);
        let lines = export.text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
        lines.filter(|line| !line.starts_with('#')).map(str::to_string).collect::<Vec<_>>()
    };
    for (name, target) in Target::ALL {
        let plain = body(&job(|_| ()), target);
        for hostile in HOSTILE {
            let foreign =
                Job { model: hostile.into(), adapters: Some(hostile.into()), predicted: hostile.into(), ..job(|_| ()) };
            assert_eq!(body(&foreign, target), plain, "{name} {hostile:?}");
        }
    }
}

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
    replayed.parallel.recompute = "full".parse().unwrap();
    let size = Size { seconds: 0.5, bytes: 0.0 };
    let refused = export(&replayed, Target::Megatron, &|instead| {
        assert_eq!(instead, &Instead::Traits("launch.graphs=none".into()));
        Some(size)
    });
    assert!(
        !refused.text.contains("--cuda-graph") && refused.text.contains("(+500 ms a step, +0.0 GiB)"),
        "{}",
        refused.text
    );
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
    assert!(read("Et*2|t*2|t|tmL").unwrap_err().to_string().contains("multi-token"));
    assert!(read("Et*|t").unwrap_err().to_string().contains("no number"));
    assert!(read("'E(t|t'").unwrap_err().to_string().contains("no end"));
}

#[test]
fn a_key_that_a_framework_lacks_is_lost_with_the_nearest() {
    let job = job(|parallel| {
        (parallel.pp, parallel.dp, parallel.zero) = (4, 2, 1);
        (parallel.schedule, parallel.vp) = ("zb-v".into(), Some(2));
    });
    let megatron = exported(&job, Target::Megatron);
    assert_eq!(lost(&megatron), ["schedule"]);
    assert!(megatron.text.contains("# lost: schedule=zb-v: Megatron-LM runs 1f1b and interleaved-1f1b"));
    let torchtitan = exported(&job, Target::Torchtitan);
    assert_eq!(lost(&torchtitan), [""; 0]);
    assert!(torchtitan.text.contains("config.parallelism.pipeline_parallel_schedule = \"ZBVZeroBubble\""));
    assert!(lost(&exported(&job, Target::Deepspeed)).contains(&"pp"));
}

#[test]
fn a_file_for_torch_has_stages_and_their_order() {
    let mut job = job(|parallel| (parallel.pp, parallel.tp, parallel.vp) = (2, 4, Some(2)));
    let order = TorchOrder { csv: "0F0,2F0\n1F0,3F0\n".into(), ranks: vec![0, 1, 0, 1], instead: None };
    job.order = Some(order.clone());
    let written = exported(&job, Target::TorchPipelining);
    assert_eq!(lost(&written), [""; 0]);
    assert_eq!(written.notes.iter().map(|note| note.key).collect::<Vec<_>>(), ["tp"]);
    for line in [
        "    (True, range(0, 8), False),",
        "    (False, range(24, 32), True),",
        "RANKS = [0, 1, 0, 1]",
        "1F0,3F0",
        "MICROBATCHES = 128",
    ] {
        assert!(written.text.lines().any(|other| other == line), "{line} in {}", written.text);
    }
    job.parallel.slices = Some(4);
    job.order = Some(TorchOrder { instead: Some("whole sequences".into()), ..order });
    assert_eq!(lost(&exported(&job, Target::TorchPipelining)), ["slices"]);
}

#[test]
fn files_of_torchtitan_are_read_back() {
    let job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero) = (16, 2, 2, true, 3);
        (parallel.schedule, parallel.vp, parallel.shard) = ("interleaved-1f1b".into(), Some(2), Some(8));
        parallel.recompute = "full".parse().unwrap();
    });
    let written = exported(&job, Target::Torchtitan);
    let read = torchtitan_file::read(&written.text, Form::Python(None), None).unwrap();
    assert_eq!(
        read.parallel,
        "dp=16,tp=2,pp=2,cp=1,ep=1,zero=3,shard=8,sp=true,tp_overlap=true,mbs=1,schedule=interleaved-1f1b,vp=2,stages=9,17,25,recompute=full"
    );
    assert_eq!((read.seq, read.global_batch, read.precision.as_str()), (Some(8192), Some(128), "bf16"));
    assert_eq!(read.warnings, [""; 0]);
}

const REGISTRY: &str = r#"
from torchtitan.config import ParallelismConfig, TrainingConfig

def base() -> Trainer.Config:
    """The model's `training=` is below."""
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=2, seq_len=4_096),  # seq_len=1
        parallelism=ParallelismConfig(data_parallel_shard_degree=-1, tensor_parallel_degree=4),
        activation_checkpoint=FullAC.Config(),
        checkpoint=CheckpointManager.Config(interval=10),
    )

def large():
    config = base()
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.pipeline_parallel_schedule = "ZBVZeroBubble"
    config.training.global_batch_size = 64
    config.activation_checkpoint = None
    if config.parallelism.tensor_parallel_degree == 1:
        pass
    return config
"#;

#[test]
fn functions_of_a_registry_build_on_each_other() {
    let read = |name, gpus| torchtitan_file::read(REGISTRY, Form::Python(name), gpus);
    let base = read(Some("base"), Some(32)).unwrap();
    assert_eq!(base.parallel, "dp=8,tp=4,pp=1,cp=1,ep=1,zero=3,sp=true,mbs=2,recompute=full");
    assert_eq!((base.seq, base.global_batch, base.stack.as_deref()), (Some(4096), Some(16), Some("fsdp-eager")));
    let large = read(Some("large"), None).unwrap();
    assert_eq!(large.parallel, "tp=4,pp=2,cp=1,ep=1,zero=3,gather=step,sp=true,mbs=1,schedule=zb-v");
    assert_eq!(large.global_batch, Some(64));
    assert!(read(None, None).unwrap_err().to_string().contains("name one as FILE.py:NAME, such as base, large"));
    assert!(read(Some("huge"), None).unwrap_err().to_string().contains("no function `huge`"));
    let computed = REGISTRY.replace("seq_len=4_096", "seq_len=length");
    let wrong = torchtitan_file::read(&computed, Form::Python(Some("base")), None).unwrap_err().to_string();
    assert_eq!(wrong, "training.seq_len is computed: write its value out");
    assert!(
        read(Some("base"), Some(30))
            .unwrap_err()
            .to_string()
            .contains("30 devices are no multiple of the other degrees, 4")
    );
}

/// Converters of a model state its precision, in Python and in TOML.
#[test]
fn converters_of_torchtitan_are_precisions() {
    let python = |converter: &str| {
        let call = format!("model_registry(\"8B\", converters=[{converter}], moe_comm_backend=\"deepep\")");
        let text = format!(
            "def one():\n    c = Trainer.Config(training=TrainingConfig(steps=9))\n    c.model_spec = {call}\n"
        );
        torchtitan_file::read(&text, Form::Python(None), None).unwrap()
    };
    let by_row = python("Float8LinearConverter.Config(filter_fqns=[\"lm_head\"], recipe_name=\"rowwise\")");
    let touched =
        "not modelled: model_spec.moe_comm_backend=deepep touches exchanges of tokens: a token goes to each node once";
    assert_eq!((by_row.precision.as_str(), by_row.warnings), ("fp8-row", vec![touched.to_string()]));
    assert_eq!(python("MXFP8LinearConverter.Config()").precision, "mxfp8");
    assert_eq!(python("NVFP4LinearConverter.Config(fqns=fqns)").precision, "nvfp4");
    assert_eq!(python("").precision, "bf16");
    let toml = |text: &str| {
        torchtitan_file::read(
            &format!("[model]\nname = \"llama3\"\nflavor = \"8B\"\n{text}\n[training]\n"),
            Form::Toml,
            None,
        )
        .unwrap()
    };
    let tensor = toml("converters = [\"float8\"]");
    assert_eq!((tensor.precision.as_str(), tensor.model.as_deref()), ("fp8-tensor", Some("llama3-8b")));
    assert_eq!(toml("converters = [\"float8\"]\n[float8]\nrecipe_name = \"rowwise\"").precision, "fp8-row");
    assert_eq!(toml("converters = [\"mx\"]").precision, "mxfp8");
    let nested = toml("converters = [\"float8\"]\n[quantize.linear.float8]\nrecipe_name = \"rowwise\"\nemulate = true");
    assert_eq!(nested.precision, "fp8-row");
    assert!(nested.warnings[0].contains("quantize.linear.float8.emulate=true touches all products"), "{nested:?}");
}

#[test]
fn toml_of_torchtitan_is_read() {
    let text = r#"
        [training]
        local_batch_size = 1
        seq_len = 8192
        [parallelism]
        data_parallel_replicate_degree = 2
        data_parallel_shard_degree = 8
        context_parallel_degree = 2
        enable_async_tensor_parallel = true
        pipeline_parallel_degree = 2
        pipeline_parallel_split_points = ["layers.4"]
        [optimizer]
        implementation = "foreach"
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "op"
        [compile]
        enable = true
    "#;
    let read = torchtitan_file::read(text, Form::Toml, None).unwrap();
    assert_eq!(
        read.parallel,
        "dp=16,tp=1,pp=2,cp=2,ep=1,zero=3,shard=16,gather=step,sp=false,tp_overlap=true,cp_kind=allgather,mbs=1,schedule=1f1b,\
         stages=5,recompute=selective:op"
    );
    assert_eq!((read.global_batch, read.stack.as_deref()), (Some(16), Some("fsdp-compile-2025")));
    assert_eq!(
        read.warnings,
        [
            "not modelled: optimizer.implementation=foreach touches the update: a kernel for each parameter, not one for all"
        ]
    );
    let wrong = |text: &str| torchtitan_file::read(text, Form::Toml, None).unwrap_err().to_string();
    assert!(wrong("[parallelism]\ntensor_parallel_degree = 0").contains("a whole number above 0"));
    assert!(
        wrong("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"2F2B\"").contains("2F2B")
    );
    assert!(wrong("[parallelism]\ndata_parallel_replicate_degree = 2").contains("--gpus"));
    assert!(wrong("[model]").contains("neither") && wrong("[model").contains("no TOML"));
}

#[test]
fn files_of_nanotron_are_read_back() {
    let job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero) = (8, 4, 2, true, 1);
    });
    let model = "  model_config:\n    is_llama_config: true\n    hidden_size: 64\n    rms_norm_eps: 1.0e-05\n";
    let written = exported(&job, Target::Nanotron).text;
    let read = nanotron_file::read(&(written.clone() + model)).unwrap();
    assert_eq!(read.parallel, "dp=8,tp=4,pp=2,sp=true,schedule=1f1b,tp_overlap=true,ep=1,zero=1,mbs=1");
    assert_eq!((read.seq, read.global_batch, read.precision.as_str()), (Some(8192), Some(128), "bf16"));
    assert_eq!(read.model.as_deref(), Some(r#"{"hidden_size":64,"model_type":"llama","rms_norm_eps":0.00001}"#));
    let wrong = |from: &str, to: &str| nanotron_file::read(&written.replace(from, to)).unwrap_err().to_string();
    assert_eq!(wrong("tp: 4", "tp: four"), "parallelism.tp is `four`: it takes a whole number");
    assert!(wrong("REDUCE_SCATTER", "SCATTER").contains("ALL_REDUCE or REDUCE_SCATTER"));
    assert!(wrong("parallelism:", "parallel:").contains("no section `parallelism`"));
    assert!(nanotron_file::read("a: [").unwrap_err().to_string().contains("no YAML"));
}

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
fn mistakes_in_flags_are_named() {
    let wrong = |text: &str| megatron::read(text, None).unwrap_err().to_string();
    assert_eq!(
        wrong("--tensor-model-parallel-size four"),
        "--tensor-model-parallel-size four: it takes a whole number"
    );
    assert_eq!(wrong("--recompute-granularity"), "--recompute-granularity has no value");
    assert!(wrong("--cp-comm-type a2a+p2p").contains("a2a+p2p"));
    assert!(wrong("--seq-length '4096").contains("no end"));
    assert!(wrong("--tensor-parallel-size 4").contains("no flag --tensor-parallel-size (did you mean"));
    assert!(wrong("--moe-token-dispatcher-type deepep").contains("one of allgather"));
    assert_eq!(wrong("--bf16 --fp16"), "--bf16 and --fp16: Megatron-LM takes one of them");
    assert!(wrong("train.sh").contains("no flags"));
    assert!(wrong("--seq-length $SEQ").contains("--seq-length ${SEQ}: it takes a whole number"));
}

#[test]
fn misspelt_keys_are_not_skipped() {
    let wrong = megatron::read("--tensor-model-paralel-size 4 --lr 1e-4", None).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "Megatron-LM has no flag --tensor-model-paralel-size (did you mean `--tensor-model-parallel-size`?)"
    );
    let torchtitan = |text: &str| torchtitan_file::read(text, Form::Toml, None).unwrap_err().to_string();
    assert_eq!(
        torchtitan("[parallelism]\ntensor_paralel_degree = 2\n"),
        "torchtitan up to 0.2 has no key parallelism.tensor_paralel_degree (did you mean `parallelism.tensor_parallel_degree`?)"
    );
    let former = torchtitan("[training]\nbatch_size = 2\n");
    assert!(former.contains("former versions") && former.contains("training.local_batch_size"), "{former}");
    assert!(torchtitan("[training]\ndisable_cuda_graphs = true\n").contains("is a key of torchtitan 0.3"));
    assert!(torchtitan("[training]\nmixed_precision_param = \"f16\"\n").contains("takes one of bfloat16, float32"));
    let own = "[training]\nmine = 2\n[experimental]\ncustom_args_module = \"mine\"\n";
    assert!(torchtitan_file::read(own, Form::Toml, None).unwrap().warnings[0].contains("touches the program"));
    let nanotron = |text: &str| nanotron_file::read(text).unwrap_err().to_string();
    assert_eq!(nanotron("parallelism: {dp: 2, other: 1}\n"), "nanotron has no key parallelism.other");
    assert_eq!(
        nanotron("parallelism: {dp: 2}\ntokens: {micro_batchsize: 2, train_steps: 5}\n"),
        "nanotron has no key tokens.micro_batchsize (did you mean `tokens.micro_batch_size`?)"
    );
}

/// The division of layers is that of torchtitan 0.3 (`generate_llm_fqn_per_model_part`), whose answers these are.
#[test]
fn layers_are_divided_as_torchtitan_does() {
    let keys = |layers_per_stage, is_looped, first, last, layers| {
        StageWeights { ranks: 4, is_looped, layers_per_stage, first, last }
            .keys(layers)
            .map_err(|fault| fault.to_string())
    };
    assert_eq!(keys(None, false, 1, 1, 32).unwrap(), ",stages=9,18,26");
    assert_eq!(keys(None, true, 1, 1, 32).unwrap(), ",vp=2,stages=5,10,14,18,22,26,30");
    assert_eq!(keys(Some(2), true, 0, 0, 32).unwrap(), ",vp=4,stages=3,5,7,9,11,13,15,17,19,21,23,25,27,29,31");
    assert!(keys(Some(4), true, 1, 1, 32).unwrap_err().contains("make 9 stages, no multiple of 4 ranks"));
    assert!(keys(Some(2), false, 0, 0, 32).unwrap_err().contains("one stage on a rank"));
    assert!(keys(None, false, 9, 1, 8).unwrap_err().contains("counts as more layers"));
    assert!(keys(None, false, -1, 1, 8).unwrap_err().contains("counts as -1 layers"));
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

/// Every flag of Megatron-LM is written, read, harmless or not modelled.
/// A flag is read, or the table says that it is harmless or not modelled.
#[test]
fn every_flag_is_judged() {
    let keys = torchtitan_file::asked();
    let tables: [(&[&FlagTable], Vec<&str>); 3] = [
        (&[&MEGATRON], megatron::asked()),
        (&[&TORCHTITAN, &TORCHTITAN_TOML], keys.iter().map(String::as_str).collect()),
        (&[&NANOTRON], nanotron_file::READ.to_vec()),
    ];
    for (tables, asked) in tables {
        assert_eq!(FlagTable::of_nothing(tables), [""; 0]);
        assert_eq!(tables[0].written_of_nothing(), [""; 0]);
        for table in tables {
            let unsaid: Vec<&str> = table.unsaid().filter(|flag| !asked.contains(flag)).collect();
            assert_eq!(unsaid, [""; 0]);
        }
    }
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
