//! Exports of configurations, and flags that are read back.

use super::*;
use ir::options::ParallelConfig;

fn job(change: impl FnOnce(&mut ParallelConfig)) -> Job {
    let mut parallel = ParallelConfig::default();
    change(&mut parallel);
    let stages = parallel.pp * u64::from(parallel.vp.unwrap_or(1));
    let layers = 32 / stages;
    let stage = |nth| Stage { embedding: nth == 0, layers, head: nth + 1 == stages };
    Job {
        model: "llama3-8b".into(),
        seq: 8192,
        global_batch: 128,
        precision: "bf16".into(),
        optimizer: "adamw".into(),
        stages: (0..stages).map(stage).collect(),
        experts: 0,
        kv_heads: 8,
        per_node: 8,
        tp_overlaps: false,
        dp_overlaps: true,
        predicted: "1.60 s a step".into(),
        parallel,
    }
}

fn lost(export: &Export) -> Vec<&'static str> {
    export.notes.iter().filter(|note| note.grade == Grade::Lost).map(|note| note.key).collect()
}

#[test]
fn flags_of_a_dense_layout_are_read_back() {
    let job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero) = (4, 4, 4, true, 1);
        (parallel.schedule, parallel.vp) = ("interleaved-1f1b".into(), Some(2));
        parallel.recompute = "selective:core_attn+mlp".parse().unwrap();
    });
    let written = export(&job, Target::Megatron);
    assert_eq!(written.notes, []);
    let read = megatron_flags::read(&written.text).unwrap();
    assert_eq!(
        read.parallel,
        "tp=4,pp=4,cp=1,sp=true,schedule=interleaved-1f1b,vp=2,zero=1,dp_overlap=true,\
         recompute=selective:core_attn+mlp,mbs=1"
    );
    assert_eq!((read.seq, read.global_batch), (Some(8192), Some(128)));
    assert_eq!((read.precision.as_str(), read.optimizer.as_str(), read.unread.len()), ("bf16", "adamw", 0));
}

#[test]
fn uneven_stages_are_a_layout() {
    let mut job = job(|parallel| (parallel.pp, parallel.dp) = (4, 2));
    for (stage, layers) in job.stages.iter_mut().zip([7, 9, 9, 7]) {
        stage.layers = layers;
    }
    let written = export(&job, Target::Megatron);
    assert!(written.text.contains("--pipeline-model-parallel-layout 'Et*7|t*9|t*9|t*7L'"), "{}", written.text);
    let read = megatron_flags::read(&written.text).unwrap();
    assert!(read.parallel.contains("stages=8,17,26"), "{}", read.parallel);
}

#[test]
fn layouts_of_megatron_are_written_out() {
    let read = |layout: &str| {
        let text = format!("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout {layout}");
        megatron_flags::read(&text).map(|read| read.parallel)
    };
    assert_eq!(read("'Ettt|(tt|)*2t,L'").unwrap(), "pp=4,stages=4,6,8,zero=0");
    assert!(read("Et*2|t*2|t|tmL").unwrap_err().contains("multi-token"));
    assert!(read("Et*|t").unwrap_err().contains("no number"));
    assert!(read("'E(t|t'").unwrap_err().contains("no end"));
}

#[test]
fn a_key_that_a_framework_lacks_is_lost_with_the_nearest() {
    let job = job(|parallel| {
        (parallel.pp, parallel.dp, parallel.zero) = (4, 2, 1);
        (parallel.schedule, parallel.vp) = ("zb-v".into(), Some(2));
    });
    let megatron = export(&job, Target::Megatron);
    assert_eq!(lost(&megatron), ["schedule"]);
    assert!(megatron.text.contains("# lost: schedule=zb-v: Megatron-LM runs 1f1b and interleaved-1f1b"));
    let torchtitan = export(&job, Target::Torchtitan);
    assert_eq!(lost(&torchtitan), [""; 0]);
    assert!(torchtitan.text.contains("config.parallelism.pipeline_parallel_schedule = \"ZBVZeroBubble\""));
    assert!(lost(&export(&job, Target::Deepspeed)).contains(&"pp"));
}

#[test]
fn degrees_of_maxtext_fill_a_node_from_the_inside() {
    let job = job(|parallel| (parallel.dp, parallel.tp, parallel.zero) = (16, 4, 3));
    let text = export(&job, Target::Maxtext).text;
    for line in
        ["ici_tensor_parallelism: 4", "ici_fsdp_parallelism: 2", "dcn_fsdp_parallelism: 8", "ici_data_parallelism: 1"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn mistakes_in_flags_are_named() {
    let wrong = |text: &str| megatron_flags::read(text).unwrap_err();
    assert_eq!(
        wrong("--tensor-model-parallel-size four"),
        "--tensor-model-parallel-size four: it takes a whole number"
    );
    assert_eq!(wrong("--recompute-granularity"), "--recompute-granularity has no value");
    assert!(wrong("--cp-comm-type a2a+p2p").contains("a2a+p2p"));
    assert!(wrong("--seq-length '4096").contains("no end"));
    let unread = megatron_flags::read("--tp-comm-overlap-cfg x.yaml --expert-model-parallel-size=8").unwrap();
    assert_eq!((unread.parallel.as_str(), unread.unread), ("ep=8,zero=0", vec!["--tp-comm-overlap-cfg".to_string()]));
}
