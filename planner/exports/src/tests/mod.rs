//! Exports of configurations, and files that are read back.

mod bridge_fields;
mod deepspeed;
mod maxtext_keys;
mod megatron_flags;
mod nanotron;
mod recipes;
mod spoiled;
mod torchtitan;

use super::flag_table::{DEEPSPEED, FlagTable, MAXTEXT, MEGATRON, NANOTRON, TORCHTITAN, TORCHTITAN_TOML};
use super::torchtitan_file::Form;
use super::*;
use cost::{Graphs, Recipe, Stack};
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
        documents: false,
        traits: Stack::find("megatron-core-2025").unwrap().traits,
        recipe: Recipe::bf16(),
        stack: "megatron-core-2025".into(),
        capability: Some(9),
        launch: Launch::default(),
        launches: 0.0,
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

/// Every flag of Megatron-LM is written, read, harmless or not modelled.
/// A flag is read, or the table says that it is harmless or not modelled.
#[test]
fn every_flag_is_judged() {
    let (keys, of_maxtext) = (torchtitan_file::asked(), maxtext::asked());
    let tables: [(&[&FlagTable], Vec<&str>); 5] = [
        (&[&MEGATRON], megatron::asked()),
        (&[&TORCHTITAN, &TORCHTITAN_TOML], keys.iter().map(String::as_str).collect()),
        (&[&NANOTRON], nanotron_file::READ.to_vec()),
        (&[&DEEPSPEED], deepspeed_file::READ.to_vec()),
        (&[&MAXTEXT], of_maxtext.iter().map(String::as_str).collect()),
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
    let former = torchtitan("[experimental]\npipeline_parallel_microbatches = 2\n[training]\nseq_len = 8\n");
    assert!(former.contains("former versions"), "{former}");
    let renamed = torchtitan_file::read("[training]\nbatch_size = 2\n", Form::Toml, Some(1)).unwrap();
    assert!(renamed.parallel.contains("mbs=2"), "{}", renamed.parallel);
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
