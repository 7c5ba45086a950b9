//! Files of torchtitan.

use super::*;

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
    // Some entries of registries compile the loss alone: layers then run one by one.
    let all = "config.compile.components = [\"model\", \"loss\"]\n";
    assert!(written.text.contains(all) && written.text.contains("--compile.components model loss"), "{}", written.text);
    let unnamed = written.text.replace("STACK =", "NAME =");
    let stack = |text: &str| torchtitan_file::read(text, Form::Python(None), None).unwrap().stack.unwrap();
    assert_eq!(stack(&unnamed), "fsdp-compile-2026");
    assert_eq!(stack(&unnamed.replace(all, "config.compile.components = [\"loss\"]\n")), "fsdp-eager-2026");
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
    assert_eq!((base.seq, base.global_batch, base.stack.as_deref()), (Some(4096), Some(16), Some("fsdp-eager-2026")));
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
