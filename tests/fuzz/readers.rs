//! Files of other programs, spoiled: weights, tokenizers, tokens of every form, configurations of other frameworks, and runs.

use crate::cases::Cases;
use crate::inputs::{spoiled, write};
use crate::models;
use crate::process::Folder;
use crate::seeds::{Seed, TEXT, answer, read_below, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const CASES: u64 = 60;

#[test]
fn readers() {
    let folder = Folder::new("fuzz-readers-seeds");
    let seeds = all(folder.path());
    seeds.iter().for_each(check);
    Cases::asked(CASES).run("readers", 2, |case| spoiled("readers", &seeds, case));
}

/// Checks that a seed as it is does well with each of its commands.
fn check(seed: &Seed) {
    for command in &seed.commands {
        let folder = Folder::new("fuzz-readers-whole");
        write(seed, folder.path());
        answer(folder.path(), command);
    }
}

const TRAIN: &str = "--steps 2 --seq 8 --global-batch 2 --valid-fraction 0.2";

fn all(folder: &Path) -> Vec<Seed> {
    fs::write(folder.join(TEXT), text()).unwrap();
    fs::write(folder.join("config.json"), models::all()[1].to_string()).unwrap();
    let mut seeds = weights(folder);
    seeds.extend(tokenizers());
    seeds.extend(tokens());
    seeds.extend(examples(folder));
    seeds.extend(frameworks());
    for seed in &mut seeds {
        for name in [TEXT, "config.json"] {
            let bytes = fs::read(folder.join(name)).unwrap();
            seed.files.entry(name.into()).or_insert(bytes);
        }
    }
    seeds
}

/// Files of a folder, of which all get spoiled.
fn of_folder(kind: &'static str, folder: &Path, name: &str, commands: &[&str]) -> Seed {
    let mut files = BTreeMap::new();
    read_below(folder, name, &mut files);
    let spoiled = files.keys().cloned().collect();
    Seed { kind, files, spoiled, commands: commands.iter().map(|command| command.to_string()).collect() }
}

/// A folder of weights, and the run that they are of.
fn weights(folder: &Path) -> Vec<Seed> {
    answer(folder, &format!("train config.json --data text.txt {TRAIN} --save-every 1 --keep-last 1 --out run"));
    answer(folder, "export-weights run --out weights");
    let begin = format!("train config.json --data text.txt {TRAIN} --init-from weights --out new");
    vec![
        of_folder("weights", folder, "weights", &[&begin, "compile weights --seq 8"]),
        of_folder(
            "run",
            folder,
            "run",
            &[
                "train --resume run --steps 3",
                "export-weights run --out written",
                "generate run --prompt the --tokens 2",
                "train config.json --data text.txt --steps 3 --seq 8 --global-batch 2 --resume run --parallel tp=2 --out other",
            ],
        ),
    ]
}

/// Tokenizers of several kinds.
fn tokenizers() -> Vec<Seed> {
    let words = json!({"[UNK]": 0, "the": 1, "quick": 2, "line": 3, "##s": 4, "dogs": 5});
    let pieces = json!([["<unk>", 0.0], ["\u{2581}", -1.0], ["the", -2.0], ["e", -3.0], ["l", -3.5]]);
    let of = |model: Value, rest: Value| {
        let mut all = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": model});
        rest.as_object().unwrap().iter().for_each(|(key, value)| all[key.as_str()] = value.clone());
        all.to_string()
    };
    let word_piece = of(
        json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": words}),
        json!({"pre_tokenizer": {"type": "BertPreTokenizer"}, "normalizer": {"type": "BertNormalizer", "clean_text": true,
            "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}}),
    );
    let unigram = of(
        json!({"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false}),
        json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}}),
    );
    let commands = ["tokenize text.txt --tokenizer tokenizer.json --out written"];
    let all = [include_str!("../tokenize/tokenizer.json").to_string(), word_piece, unigram];
    all.map(|text| Seed::one("tokenizer", "tokenizer.json", text, &commands)).into()
}

/// The same ids in every form.
fn tokens() -> Vec<Seed> {
    let documents: Vec<Vec<u16>> = (0..40u16)
        .map(|number| (0..20 + number).map(|at| if at == 0 { 0 } else { 1 + (number + at * at) % 59 }).collect())
        .collect();
    let ids: Vec<u8> = documents.concat().iter().flat_map(|id| id.to_le_bytes()).collect();
    let count = (ids.len() / 2) as u32;
    let ends = documents.iter().scan(0u64, |end, document| {
        *end += document.len() as u64;
        Some(end.to_le_bytes())
    });
    let ends: Vec<u8> = ends.flatten().collect();
    let mut llm: Vec<u8> = [20_240_520u32, 1, count].iter().flat_map(|word| word.to_le_bytes()).collect();
    llm.resize(1024, 0);
    llm.extend(&ids);
    let train = |words: &str| format!("train config.json {TRAIN} --out new --data {words}");
    let one = |files: &[(&str, &[u8])], words: &str| Seed {
        kind: "tokens",
        files: files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect(),
        spoiled: files.iter().map(|(name, _)| name.to_string()).collect(),
        commands: vec![train(words)],
    };
    vec![
        one(&[("set.bin", &ids), ("set.idx", &index(&documents))], "set"),
        one(&[("set.ds", &ids), ("set.ds.index", &ends)], "set.ds"),
        one(&[("llm.bin", &llm)], "llm.bin --eos 0"),
        one(&[("raw", &ids)], "raw --data-format raw-u16 --eos 0"),
    ]
}

/// Lines of examples with their chat template, and the files of tokens that are made of them.
fn examples(folder: &Path) -> Vec<Seed> {
    let line = r#"{"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "and the"}]}"#;
    let lines =
        [line, r#"{"prompt": "the", "completion": " and"}"#, r#"{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}"#];
    let template = "{% for m in messages %}<{{ m['role'] | upper }}>{% generation %}{{ m.content.strip() }}{% endgeneration %}\
        {% if not loop.last %}, {% endif %}{% endfor %}{{ tools | tojson }}";
    fs::write(folder.join("lines.jsonl"), lines.map(|line| line.to_string() + "\n").concat().repeat(9)).unwrap();
    fs::write(folder.join("chat_template.jinja"), template).unwrap();
    fs::write(folder.join("tokenizer.json"), include_str!("../tokenize/tokenizer.json")).unwrap();
    // The model has fewer tokens than the tokenizer.
    fs::write(folder.join("ids.jsonl"), lines[2].to_string() + "\n" + lines[2]).unwrap();
    answer(
        folder,
        "tokenize ids.jsonl ids.jsonl ids.jsonl ids.jsonl ids.jsonl ids.jsonl ids.jsonl ids.jsonl --tokenizer . --out tuned",
    );
    let seed = |files: &[&str], spoiled: &[&str], command: String| Seed {
        kind: "examples",
        files: files.iter().map(|name| (name.to_string(), fs::read(folder.join(name)).unwrap())).collect(),
        spoiled: spoiled.iter().map(|name| name.to_string()).collect(),
        commands: vec![command],
    };
    let lines = ["lines.jsonl", "chat_template.jinja", "tokenizer.json"];
    let tuned = ["tuned.bin", "tuned.idx", "tuned.json", "tuned.labels"];
    vec![
        seed(&lines, &lines[..2], "tokenize lines.jsonl --tokenizer . --out written".to_string()),
        seed(&tuned, &tuned[2..], format!("train config.json {TRAIN} --out new --data tuned")),
    ]
}

/// The index of Megatron's form: a mark, the version, the type of ids, counts, lengths, places and ends of documents.
fn index(documents: &[Vec<u16>]) -> Vec<u8> {
    let count = documents.len() as u64;
    let mut index = b"MMIDIDX\0\0".to_vec();
    index.extend(1u64.to_le_bytes());
    index.push(8);
    index.extend(count.to_le_bytes());
    index.extend((count + 1).to_le_bytes());
    documents.iter().for_each(|document| index.extend((document.len() as u32).to_le_bytes()));
    let places = documents.iter().scan(0u64, |place, document| {
        let own = *place;
        *place += 2 * document.len() as u64;
        Some(own.to_le_bytes())
    });
    index.extend(places.flatten());
    (0..=count).for_each(|number| index.extend(number.to_le_bytes()));
    index
}

const MEGATRON: &str = r"#!/bin/bash
ARGS=(
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 # two
  --sequence-parallel --micro-batch-size 1
  --num-layers 4 --hidden-size 256 --seq-length 64 --global-batch-size 16 --bf16
)
torchrun pretrain_gpt.py ${ARGS[@]}
";

const TORCHTITAN: &str = r#"[parallelism]
data_parallel_shard_degree = 2
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
[training]
seq_len = 64
local_batch_size = 2
[activation_checkpoint]
mode = "full"
"#;

const TORCHTITAN_FUNCTION: &str = r"def small():
    return Trainer.Config(
        parallelism=ParallelismConfig(tensor_parallel_degree=2, pipeline_parallel_degree=2),
        training=TrainingConfig(local_batch_size=2, seq_len=64),
    )
";

const NANOTRON: &str = r"parallelism:
  dp: 2
  tp: 2
  pp: 2
  pp_engine: 1f1b
  tp_mode: REDUCE_SCATTER
tokens:
  micro_batch_size: 1
  batch_accumulation_per_replica: 4
  sequence_length: 64
model: &model
  dtype: bfloat16
  model_config:
    is_llama_config: true
    hidden_size: 64
    intermediate_size: 128
    num_attention_heads: 4
    num_hidden_layers: 4
    vocab_size: 257
    max_position_embeddings: 64
";

const DEEPSPEED: &str = r#"{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "offload_optimizer": {"device": "cpu"}}
}"#;

const MAXTEXT: &str = "base_config: \"base.yml\"
decoder_block: \"llama2\"
base_num_decoder_layers: 4
base_emb_dim: 64
base_num_query_heads: 4
base_num_kv_heads: 4
base_mlp_dim: 128
head_dim: 16
vocab_size: 257
ici_fsdp_parallelism: 4
ici_tensor_parallelism: 2
dcn_data_parallelism: -1
per_device_batch_size: 1_0
max_target_length: 32
remat_policy: minimal
";

const MAXTEXT_COMMAND: &str = "OUT=x
python3 -m maxtext.trainers.pre_train.train base.yml run_name=$OUT model_name=llama2-7b ici_fsdp_parallelism=8 \\
    per_device_batch_size=1 max_target_length=2048
";

const BRIDGE: &str = "model:
  num_layers: 4
  hidden_size: 64
  num_attention_heads: 4
  ffn_hidden_size: 128
  vocab_size: 257
  seq_length: 32
  normalization: RMSNorm
  add_bias_linear: false
  gated_linear_unit: true
  activation_func: {_call_: false, _target_: torch.nn.functional.silu}
  position_embedding_type: rope
  tensor_model_parallel_size: 2
  recompute_granularity: selective
  recompute_modules: [core_attn]
train: {global_batch_size: 16, micro_batch_size: 1}
ddp: {use_distributed_optimizer: true}
mixed_precision: bf16_mixed
";

/// Configurations of other frameworks.
fn frameworks() -> Vec<Seed> {
    let titan = "estimate tiny-llama --gpus 8 --global-batch 16 --from-torchtitan";
    vec![
        Seed::one("megatron", "run.sh", MEGATRON, &["estimate tiny-llama --gpus 8 --from-megatron run.sh"]),
        Seed::one("torchtitan", "run.toml", TORCHTITAN, &[&format!("{titan} run.toml")]),
        Seed::one("torchtitan", "run.py", TORCHTITAN_FUNCTION, &[&format!("{titan} run.py:small")]),
        Seed::one("nanotron", "run.yaml", NANOTRON, &["estimate --gpus 8 --from-nanotron run.yaml"]),
        Seed::one(
            "deepspeed",
            "run.json",
            DEEPSPEED,
            &["estimate tiny-llama --gpus 8 --seq 32 --from-deepspeed run.json"],
        ),
        Seed::one("maxtext", "run.yml", MAXTEXT, &["estimate --gpus 8 --from-maxtext run.yml"]),
        Seed::one("maxtext", "run.sh", MAXTEXT_COMMAND, &["estimate --gpus 8 --from-maxtext run.sh"]),
        Seed::one("bridge", "run.yaml", BRIDGE, &["estimate --gpus 8 --from-megatron-bridge run.yaml"]),
    ]
}
