//! Records of published collections, mapped to cluster, stack, number formats and configuration.
//!
//! No other module decides this mapping.

use super::runs::{MemoryKind, RunLine};
use serde_json::{Map, Value, json};

/// Source of the runs of Qi et al. 2023.
const ZERO_BUBBLE: &str = "arXiv 2401.10241 Zero Bubble";

/// Sources and the stack of each. `fsdp` is replaced by the stack with or without a compiler, as the record states.
const STACKS: [(&str, &str); 17] = [
    ("HF Ultra-Scale Playbook", "nanotron-2024"),
    ("llm-foundry", "foundry-2023"),
    ("Megatron-Bridge performance summary", "megatron-core-2025"),
    ("Megatron-Bridge skills", "megatron-core-2025"),
    ("Megatron-Bridge verification cards", "megatron-core-2025"),
    ("Megatron-LM README/examples", "megatron-core-2025"),
    ("NeMo docs / launcher", "nemo"),
    ("NeMo AutoModel performance summary", "automodel"),
    ("NeMo AutoModel yaml comments", "automodel"),
    ("torchtitan", "fsdp"),
    ("fms-fsdp", "fsdp"),
    ("JAX-Toolbox", "jax-2023"),
    ("NVIDIA dgxc-benchmarking", "nemo"),
    ("BigScience tr3m-1B3 (V100)", "megatron-deepspeed-2021"),
    ("BigScience BLOOM prequel", "megatron-deepspeed-2022"),
    (ZERO_BUBBLE, "zero-bubble-2023"),
    ("arXiv 2205.05198", "megatron-2022"),
];

/// Prefixes of device names, and the cluster that has the device. The first match counts.
const CLUSTERS: [(&str, &str); 13] = [
    ("V100", "v100-dgx2"),
    ("A100-SXM-40GB", "a100-40gb"),
    ("A100", "a100-80gb"),
    ("H100-SXM-96GB", "h100-96gb"),
    ("H100", "h100-dgx-ndr"),
    ("H200", "h200"),
    ("H800", "h800"),
    ("B200", "b200"),
    ("GB200", "gb200-nvl72"),
    ("B300", "b300"),
    ("GB300", "gb300-nvl72"),
    ("MI300X", "mi300x"),
    ("MI325X", "mi300x"),
];

/// Names of precision recipes in the sources and here.
const PRECISIONS: [(&str, &str); 6] = [
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp8", "fp8-tensor"),
    ("fp8-rowwise", "fp8-row"),
    ("mxfp8", "mxfp8"),
    ("nvfp4", "nvfp4"),
];

/// Converts a record to a run. Returns `None` if the record does not state its full configuration, has no time, or is
/// neither pretraining nor fine-tuning of a kind that is known.
pub(super) fn line(record: &Value) -> Option<RunLine> {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let whole = |key: &str| record.get(key).and_then(Value::as_u64);
    let source = text("source_group")?;
    let task = text("task")?;
    let lora = match task {
        "pretrain" | "sft" => None,
        "lora" => Some(adapters(source)?),
        _ => return None,
    };
    let is_tuned = task != "pretrain";
    if text("status") != Some("ok") {
        return None;
    }
    if text("tier") != Some("A") && pipeline_microbatch(record).is_none() {
        return None;
    }
    if (source.starts_with("NVIDIA") || is_tuned) && whole("pp") > Some(1) && whole("vp").is_none() {
        return None;
    }
    // Early pipelines of NeMo AutoModel took twice as long as its later runs without; what they recomputed is not stated.
    if is_tuned && whole("pp") > Some(1) && text("recompute").is_none() {
        return None;
    }
    let stack = of(&STACKS, source)?;
    // torchtitan: all records published since 2025 are compiled.
    let said = record.pointer("/overlap/torch.compile").and_then(Value::as_bool);
    let is_late = text("date").is_some_and(|date| date >= "2025");
    let compiled = said.unwrap_or(source == "torchtitan" && is_late);
    let gpu = text("gpu")?;
    let is_blackwell = gpu.starts_with("B200") || gpu.starts_with("GB200");
    let is_before = |year: &str| text("date").is_some_and(|date| date < year);
    let stack = match (stack, compiled) {
        // Until 2025 torchtitan compiled layers alone.
        ("fsdp", true) if is_before("2025") => "fsdp-compile-2024",
        ("fsdp", true) if is_before("2026") && is_blackwell => "fsdp-compile-2025",
        ("fsdp", true) if text("date").is_some_and(|date| date >= "2026") => "fsdp-compile-2026",
        ("fsdp", true) => "fsdp-compile",
        ("fsdp", false) => "fsdp-eager",
        // Dense models are those of Hugging Face, compiled (enable_compile of the benchmarks' recipes).
        ("automodel", _) if record.pointer("/model_config/experts").is_none_or(Value::is_null) => "fsdp-compile",
        ("automodel", _) => "automodel-2026",
        ("jax-2023", _) if text("notes").is_some_and(|notes| notes.contains("no TE")) => "jax-xla-2023",
        // Cards of 2026: those of performance recipes, with mock data.
        ("megatron-core-2025", _) if text("id").is_some_and(|id| id.contains("/pretrain_performance/")) => {
            "megatron-core-2026"
        }
        ("megatron-core-2025", _) if text("notes").is_some_and(|notes| notes.starts_with("tokendrop")) => {
            "megatron-core-2025-drop"
        }
        ("megatron-core-2025", _) if record.pointer("/overlap/dispatcher").is_some_and(|it| it == "alltoall") => {
            "megatron-core-2025-alltoall"
        }
        // NVIDIA's recipes that shard parameters are those of MaxText and Pax; NeMo's shard optimizer states.
        ("nemo", _) if source.starts_with("NVIDIA") && whole("zero_stage") == Some(3) => "jax-2024",
        ("nemo", _) if is_before("2024-04") => "nemo-2024-01",
        // NeMo 2 of 2025 runs Megatron-Core 0.10 and later; its recipes of experts have the dispatcher `alltoall` (moe_token_dispatcher_type
        // of nemo/collections/llm/gpt/model/mixtral.py).
        ("nemo", _) if is_late && whole("ep").is_some_and(|ep| ep > 1) => "megatron-core-2025-alltoall",
        ("nemo", _) if is_late => "megatron-core-2025",
        _ => stack,
    };
    let cluster = CLUSTERS.iter().find(|(name, _)| gpu.starts_with(name))?.1;
    let cluster = if stack == "nanotron-2024" { "h100-p5-efa" } else { cluster };
    let regime = text("pb_regime").filter(|regime| *regime != "core");
    let by_default = pipeline_microbatch(record).map(|_| "micro-batches by default");
    let kind = regime.or(by_default).or(is_tuned.then_some("fine-tuning"));
    Some(RunLine {
        id: text("id")?.into(),
        source: kind.map_or(source.into(), |kind| format!("{source}, {kind}")),
        // The collection has cut these off by what came out.
        apart: regime.is_some(),
        model: config(record.get("model_config")?, text("model")?, whole("seq_len")?, dropout(source))?,
        lora: lora.map(str::to_string),
        cluster: cluster.into(),
        stack: stack.into(),
        gpus: whole("n_gpus")?,
        seq: whole("seq_len")?,
        global_batch: whole("global_batch")?,
        lengths: lengths(record),
        // Its recipe keeps gradients and moments in bf16 (moonlight_16b.py).
        optimizer: text("model").filter(|model| model.starts_with("moonlight")).map(|_| "adamw-bf16".into()),
        precision: precision(source, text("precision")?)?.into(),
        parallel: parallel(record, stack)?,
        step_time_s: printed(record, "step_time_s"),
        tokens_per_s_per_gpu: printed(record, "tokens_per_s_per_gpu"),
        memory_gib: printed(record, "mem_gb").map(|figure| figure / unit(source)),
        memory: memory(source),
    })
    .filter(|line| line.step_time_s.is_some() || line.tokens_per_s_per_gpu.is_some())
}

fn of(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == name).map(|it| it.1)
}

/// Returns a measured figure, or `None` if the source computed it from others.
fn printed(record: &Value, key: &str) -> Option<f64> {
    let derived = record.get("derived").and_then(Value::as_array)?;
    let value = record.get("measured")?.get(key)?.as_f64()?;
    (!derived.iter().any(|it| it.as_str() == Some(key))).then_some(value)
}

/// Returns the kind of memory figure that a source prints.
fn memory(source: &str) -> MemoryKind {
    match source {
        "HF Ultra-Scale Playbook" => MemoryKind::FirstStage,
        "BigScience tr3m-1B3 (V100)" | "BigScience BLOOM prequel" => MemoryKind::Device,
        "torchtitan" => MemoryKind::Reserved,
        _ => MemoryKind::Allocated,
    }
}

/// Units of a source's memory figures per GiB. Megatron-Bridge divides by 1e9 (report_memory of
/// training/utils/train_utils.py), and Qi et al. 2023 state GB.
fn unit(source: &str) -> f64 {
    if source.starts_with("Megatron-Bridge") || source == ZERO_BUBBLE { 1.073_741_824 } else { 1.0 }
}

/// Dropout probability of GPT models. BigScience's script and that of Qi et al. 2023 (examples/pretrain_zero_bubble.sh) leave Megatron-LM's
/// default.
fn dropout(source: &str) -> f64 {
    if source.starts_with("BigScience") || source == ZERO_BUBBLE { 0.1 } else { 0.0 }
}

/// Precision recipe of a record. Qi et al. 2023 do not state theirs; their script has `--fp16`.
fn precision(source: &str, stated: &str) -> Option<&'static str> {
    if source == ZERO_BUBBLE { Some("fp16") } else { of(&PRECISIONS, stated) }
}

/// The configuration in the grammar of `--parallel`.
fn parallel(record: &Value, stack: &str) -> Option<String> {
    let whole = |key: &str| record.get(key).and_then(Value::as_u64);
    let degree = |key: &str| whole(key).unwrap_or(1);
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let flag = |key: &str| record.get(key).and_then(Value::as_bool);
    let microbatch = whole("micro_batch").or(pipeline_microbatch(record));
    let mut items = vec![format!("mbs={}", microbatch?)];
    let is_nvidia = text("source_group").is_some_and(|source| source.starts_with("NVIDIA"));
    let dispatches = record.pointer("/overlap/kernels").and_then(Value::as_str).is_some_and(|it| it.contains("DeepEP"));
    for key in ["tp", "pp", "cp", "ep", "etp"] {
        let degree = match key {
            // The dispatcher needs expert-parallel ranks. If the table omits them, recipes use all ranks that hold a
            // copy.
            "ep" if dispatches && degree(key) == 1 => degree("dp"),
            // Unless stated it is that of the other layers (expert_tensor_parallel_size of Megatron-Core).
            "etp" if is_nvidia && degree("ep") > 1 => whole("etp").unwrap_or(degree("tp")),
            _ => degree(key),
        };
        if degree > 1 {
            items.push(format!("{key}={degree}"));
        }
    }
    // Megatron's default (--cp-comm-type p2p, megatron/training/arguments.py).
    if degree("cp") > 1 && (stack == "nemo" || stack.starts_with("megatron-core")) {
        items.push("cp_kind=ring".into());
    }
    if degree("tp") > 1 && flag("sequence_parallel") != Some(false) {
        items.push("sp=true".into());
    }
    let zero = whole("zero_stage").unwrap_or(if flag("fsdp") == Some(true) { 3 } else { 0 });
    if zero > 0 {
        items.push(format!("zero={zero}"));
    }
    let shard = match stack {
        "jax-2024" => Some(jax_shard(degree("n_gpus"), text("model")?)),
        _ => (record.pointer("/overlap/strategy").and_then(Value::as_str) == Some("HSDP"))
            .then(|| degree("gpus_per_node")),
    };
    items.extend(shard.filter(|shard| *shard < degree("dp")).map(|shard| format!("shard={shard}")));
    let chunks = match text("id") {
        // Section 6 of the paper runs 175B and 530B with three interleaved stages per rank. The record omits that for
        // 175B.
        Some(id) if id.starts_with("megatron-sp/175B/") => 3,
        _ => whole("vp").unwrap_or(pipeline_chunks(record)),
    };
    if degree("pp") > 1 && chunks > 1 {
        items.push(format!("vp={chunks}"));
    }
    let layers = record.pointer("/model_config/layers").and_then(Value::as_u64)?;
    if stack == "zero-bubble-2023" {
        items.extend(zero_bubble(text("schedule")?, layers, degree("pp") * chunks)?);
    }
    // Defaults of the published training configurations. torchtitan saves the results of some ops. Pax repeats the
    // layers of all but the smallest model, which saves only the products with weights.
    let unsaid = match text("source_group") {
        Some("torchtitan") => "selective:op",
        Some("JAX-Toolbox") if zero > 0 => "selective:core_attn",
        _ if stack == "jax-2024" => jax_recompute(text("model")?),
        _ => "none",
    };
    let said = match text("recompute") {
        // Taken from a later recipe. Without recomputation the run would need 202 GiB of the 80 GiB of a device.
        Some("none") if text("id") == Some("automodel/pretrain/DeepSeek_V3_671B/n1024") => "full",
        said => said.unwrap_or(unsaid),
    };
    items.extend(recompute(said, layers)?);
    if let Some(overlap) = record.pointer("/overlap/async_tp").and_then(Value::as_bool) {
        items.push(format!("tp_overlap={overlap}"));
    }
    Some(items.join(","))
}

/// Adapters of a publisher's fine-tuning: `dim`, `alpha` and `match_all_linear` of NeMo AutoModel's recipes (examples/llm_benchmark);
/// `adapter_dim` of NeMo, whose `target_modules` are `attention_qkv` (conf/peft/llama/squad.yaml of its launcher).
fn adapters(source: &str) -> Option<&'static str> {
    match source {
        "NeMo AutoModel performance summary" => Some("8,alpha=32"),
        "NeMo docs / launcher" => Some("32,alpha=32,q,k,v"),
        _ => None,
    }
}

/// Documents of a sequence. Those of SQuAD, packed, have some 200 tokens: paragraphs of 120 words with a question (Rajpurkar et al. 2016).
fn lengths(record: &Value) -> Vec<u64> {
    let notes = record.get("notes").and_then(Value::as_str).unwrap_or_default();
    if notes.starts_with("SQuAD packed to 4096") { vec![SQUAD; 4096 / SQUAD as usize] } else { Vec::new() }
}

/// Tokens of a question of SQuAD with its paragraph, rounded to a power of two.
const SQUAD: u64 = 256;

/// Micro-batch of torchtitan's pipelines if a record leaves it out: as many micro-batches as ranks (build_pipeline_schedule of
/// torchtitan/parallelisms/pipelining_utils.py of 2024: pipeline_parallel_microbatches is the degree unless set).
fn pipeline_microbatch(record: &Value) -> Option<u64> {
    let whole = |key: &str| record.get(key).and_then(Value::as_u64);
    let ranks = whole("pp").filter(|pp| *pp > 1)?;
    let is_left_out = record.get("source_group")?.as_str()? == "torchtitan" && whole("micro_batch").is_none();
    let of_rank = whole("global_batch")? / whole("dp")?;
    (is_left_out && of_rank % ranks == 0).then(|| of_rank / ranks)
}

/// Stages of a rank if a record leaves them out: two where the schedule of torchtitan is interleaved, else one.
fn pipeline_chunks(record: &Value) -> u64 {
    let is_interleaved = record.get("schedule").and_then(Value::as_str) == Some("interleaved-1F1B");
    let is_torchtitan = record.get("source_group").and_then(Value::as_str) == Some("torchtitan");
    if is_interleaved && is_torchtitan { 2 } else { 1 }
}

/// Ranks that parameters are sharded over in NVIDIA's recipes for JAX (dgxc-benchmarking, maxtext/configure.sh: 16 of 64 nodes
/// and more; paxml/configure.sh: 16 nodes, and one for GPT-3 5B).
fn jax_shard(devices: u64, model: &str) -> u64 {
    match model {
        "gpt3-5b" => 8,
        "gpt3-175b" => 128,
        _ if devices >= 512 => 128,
        _ => devices,
    }
}

/// Recomputation of the same recipes: all but products (SAVE_DOT_ONLY of GPT-3 5B), or all but the projections of attention
/// (SAVE_QKV_OUT_PROJ of Pax, save_qkv_proj of MaxText).
fn jax_recompute(model: &str) -> &'static str {
    if model == "gpt3-5b" { "selective:core_attn" } else { "selective:core_attn+layernorm+mlp" }
}

/// Schedule and stages of Qi et al. 2023, section 5.1: embedding and head count as a layer each, and stages have as many layers.
/// ZB-1p is searched within the memory of 1F1B, and ZB-2p within twice that.
fn zero_bubble(schedule: &str, layers: u64, stages: u64) -> Option<[String; 2]> {
    let schedule = match schedule {
        "1F1B" => "1f1b",
        "1F1B-I" => "interleaved-1f1b",
        "ZB-1p" => "zb-h1",
        "ZB-2p" => "zb-auto",
        _ => return None,
    };
    let starts: Vec<String> = (1..stages).map(|stage| (stage * (layers + 2) / stages).to_string()).collect();
    Some([format!("schedule={schedule}"), format!("stages={}", starts.join(","))])
}

/// Returns the recomputation in the grammar of `--parallel`, or `None` if the source does not state it fully.
fn recompute(said: &str, layers: u64) -> Option<Option<String>> {
    Some(match said {
        "none" => None,
        "full" => Some("recompute=full".into()),
        "selective:core_attn" => Some("recompute=selective".into()),
        "selective:op" => Some("recompute=selective:op".into()),
        "selective:every-2nd-layer" => Some(format!("recompute=full:{}", layers / 2)),
        "selective:layer-fraction" => return None,
        modules => Some(format!("recompute={modules}")),
    })
}

/// Returns the model as a `config.json` of a family with the same shapes.
fn config(shape: &Value, name: &str, seq: u64, dropout: f64) -> Option<Value> {
    let whole = |key: &str| shape.get(key).and_then(Value::as_u64);
    let flag = |key: &str| shape.get(key).and_then(Value::as_bool);
    let (layers, hidden, heads) = (whole("layers")?, whole("hidden")?, whole("heads")?);
    let (kv_heads, ffn) = (whole("kv_heads").unwrap_or(heads), whole("ffn")?);
    let tied = flag("tied_embeddings").unwrap_or(false);
    let is_gated = flag("gated_mlp") != Some(false) || whole("experts").is_some();
    // Nemotron has grouped heads and no gate; models without either are GPTs.
    if !is_gated && !name.to_lowercase().starts_with("nemotron") {
        // The position table has the length of the sequence.
        return (kv_heads == heads && hidden == heads * whole("head_dim").unwrap_or(hidden / heads)).then(|| {
            json!({"model_type": "gpt2", "name": name, "n_embd": hidden, "n_layer": layers, "n_head": heads,
                   "n_inner": ffn, "n_positions": seq, "vocab_size": whole("vocab"), "tie_word_embeddings": tied,
                   "resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout})
        });
    }
    let mut config = json!({"model_type": "llama", "name": name, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn,
        "vocab_size": whole("vocab"), "tie_word_embeddings": tied, "max_position_embeddings": seq.max(131_072)});
    if whole("mla").is_none() && shape.get("mla").is_none_or(Value::is_null) {
        config["head_dim"] = json!(whole("head_dim").unwrap_or(hidden / heads));
    }
    if !is_gated {
        config["mlp_gate"] = json!(false);
        config["hidden_act"] = json!("relu2");
    }
    if let Some(experts) = whole("experts") {
        config.as_object_mut()?.extend(with_experts(shape, name, experts)?);
    }
    Some(config)
}

/// Adds the keys of an MoE model to the configuration.
fn with_experts(shape: &Value, name: &str, experts: u64) -> Option<Map<String, Value>> {
    let whole = |key: &str| shape.get(key).and_then(Value::as_u64);
    let (topk, ffn) = (whole("topk")?, whole("moe_ffn").or(whole("ffn"))?);
    // Windows, sinks, biases and bounded gates follow from the family.
    let is_gpt_oss = name.to_lowercase().starts_with("gpt") && name.to_lowercase().contains("oss");
    let more = match shape.get("mla").filter(|mla| mla.is_object()) {
        _ if is_gpt_oss => {
            json!({"model_type": "gpt_oss", "num_local_experts": experts, "num_experts_per_tok": topk})
        }
        Some(mla) => {
            let shared = whole("shared_expert_ffn").unwrap_or(0) / ffn;
            // Layers that predict further tokens are left out: predictions with them are slower than all that is published.
            json!({"model_type": "deepseek_v3", "n_routed_experts": experts, "num_experts_per_tok": topk,
                   "moe_intermediate_size": ffn, "n_shared_experts": shared,
                   "first_k_dense_replace": whole("dense_layers").unwrap_or(0),
                   "num_nextn_predict_layers": 0,
                   "q_lora_rank": mla.get("q_lora_rank"), "kv_lora_rank": mla.get("kv_lora_rank"),
                   "qk_nope_head_dim": mla.get("qk_nope_head_dim"), "qk_rope_head_dim": mla.get("qk_rope_head_dim"),
                   "v_head_dim": mla.get("v_head_dim")})
        }
        None if whole("shared_expert_ffn").is_some() => {
            json!({"model_type": "qwen2_moe", "num_experts": experts, "num_experts_per_tok": topk,
                   "moe_intermediate_size": ffn, "shared_expert_intermediate_size": whole("shared_expert_ffn"),
                   "decoder_sparse_step": whole("moe_every").unwrap_or(1)})
        }
        None if whole("ffn") == Some(ffn) => {
            json!({"model_type": "mixtral", "num_local_experts": experts, "num_experts_per_tok": topk})
        }
        None => {
            json!({"model_type": "qwen3_moe", "num_experts": experts, "num_experts_per_tok": topk,
                   "moe_intermediate_size": ffn})
        }
    };
    more.as_object().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Value {
        json!({"id": "a", "source_group": "torchtitan", "tier": "A", "task": "pretrain", "status": "ok",
            "model": "llama3-8b", "gpu": "H100-SXM-96GB-HBM2e-500W", "n_gpus": 256, "seq_len": 8192,
            "global_batch": 512, "micro_batch": 16, "precision": "fp8", "tp": 8, "pp": 1, "sequence_parallel": true,
            "fsdp": true, "zero_stage": 3, "recompute": "full", "overlap": {"torch.compile": true, "async_tp": true},
            "model_config": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128,
                "ffn": 14336, "vocab": 128256, "gated_mlp": true, "tied_embeddings": false},
            "measured": {"tokens_per_s_per_gpu": 800.0, "step_time_s": 20.48}, "derived": ["step_time_s"]})
    }

    #[test]
    fn a_record_is_a_run() {
        let line = line(&record()).unwrap();
        assert_eq!((line.cluster.as_str(), line.stack.as_str()), ("h100-96gb", "fsdp-compile"));
        assert_eq!(line.parallel, "mbs=16,tp=8,sp=true,zero=3,recompute=full,tp_overlap=true");
        assert_eq!((line.step_time_s, line.tokens_per_s_per_gpu), (None, Some(800.0)));
        assert_eq!(line.precision, "fp8-tensor");
    }

    #[test]
    fn a_stack_is_of_its_year() {
        let stack = |date: &str, gpu: &str| {
            let mut record = record();
            (record["date"], record["gpu"]) = (json!(date), json!(gpu));
            line(&record).unwrap().stack
        };
        assert_eq!(stack("2024-12", "H100-SXM-80GB"), "fsdp-compile-2024");
        assert_eq!(stack("2025-06", "H200-SXM-141GB"), "fsdp-compile");
        assert_eq!(stack("2025", "B200-SXM-180GB"), "fsdp-compile-2025");
        assert_eq!(stack("2026", "GB200-NVL72-186GB"), "fsdp-compile-2026");
    }

    #[test]
    fn a_stack_exchanges_tokens_as_the_record_says() {
        let mut record = record();
        record["source_group"] = json!("Megatron-Bridge performance summary");
        let stack = |record: &Value| line(record).unwrap().stack;
        assert_eq!(stack(&record), "megatron-core-2025");
        record["overlap"] = json!({"dispatcher": "alltoall"});
        assert_eq!(stack(&record), "megatron-core-2025-alltoall");
        record["notes"] = json!("tokendrop; second quantisation recipe");
        assert_eq!(stack(&record), "megatron-core-2025-drop");
    }

    #[test]
    fn memory_is_in_gib() {
        let gib = |source: &str| {
            let mut record = record();
            record["source_group"] = json!(source);
            record["measured"]["mem_gb"] = json!(50.0);
            line(&record).unwrap().memory_gib.unwrap()
        };
        assert_eq!(gib("torchtitan"), 50.0);
        let bytes = gib("Megatron-Bridge skills") * 1024.0 * 1024.0 * 1024.0;
        assert!((bytes - 50e9).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn interleaved_stages_that_a_record_leaves_out_are_known() {
        let parallel = |id: &str| {
            let mut record = record();
            (record["id"], record["pp"]) = (json!(id), json!(8));
            line(&record).unwrap().parallel
        };
        assert!(parallel("megatron-sp/175B/full").contains(",pp=8,sp=true,zero=3,vp=3"));
        assert!(!parallel("megatron-sp/1T/full").contains("vp="));
    }

    #[test]
    fn embedding_and_head_are_layers_of_zero_bubble_stages() {
        let mut record = record();
        record["source_group"] = json!(ZERO_BUBBLE);
        (record["pp"], record["schedule"], record["zero_stage"]) = (json!(4), json!("ZB-2p"), json!(0));
        (record["model_config"]["layers"], record["tp"]) = (json!(10), json!(1));
        record["measured"]["mem_gb"] = json!(50.0);
        let run = line(&record).unwrap();
        assert_eq!(run.parallel, "mbs=16,pp=4,schedule=zb-auto,stages=3,6,9,recompute=full,tp_overlap=true");
        assert_eq!((run.stack.as_str(), run.memory_gib), ("zero-bubble-2023", Some(50.0 / 1.073_741_824)));
        assert_eq!((run.precision.as_str(), dropout(&run.source)), ("fp16", 0.1));
    }

    #[test]
    fn recipes_for_jax_state_what_records_leave_out() {
        let parallel = |model: &str, devices: u64| {
            let mut record = record();
            record["source_group"] = json!("NVIDIA dgxc-benchmarking");
            (record["model"], record["n_gpus"], record["dp"]) = (json!(model), json!(devices), json!(devices));
            (record["tp"], record["recompute"], record["overlap"]) = (json!(1), Value::Null, Value::Null);
            let run = line(&record).unwrap();
            assert_eq!(run.stack, "jax-2024");
            run.parallel
        };
        let modules = "recompute=selective:core_attn+layernorm+mlp";
        assert_eq!(parallel("llama3-70b", 256), format!("mbs=16,zero=3,{modules}"));
        assert_eq!(parallel("llama3-70b", 512), format!("mbs=16,zero=3,shard=128,{modules}"));
        assert_eq!(parallel("gpt3-5b", 64), "mbs=16,zero=3,shard=8,recompute=selective");
    }

    #[test]
    fn experts_are_cut_over_tp_unless_it_is_stated() {
        let parallel = |etp: Value| {
            let mut record = record();
            record["source_group"] = json!("NVIDIA dgxc-benchmarking");
            (record["zero_stage"], record["ep"], record["etp"]) = (json!(1), json!(8), etp);
            (record["cp"], record["pp"]) = (json!(2), json!(1));
            line(&record).unwrap().parallel
        };
        assert!(parallel(Value::Null).contains("cp=2,ep=8,etp=8,cp_kind=ring"), "{}", parallel(Value::Null));
        assert!(!parallel(json!(1)).contains("etp"));
    }

    #[test]
    fn nemotron_has_grouped_heads_and_no_gate() {
        let mut record = record();
        record["model_config"]["gated_mlp"] = json!(false);
        // A GPT has as many heads of keys as of queries.
        assert_eq!(line(&record), None);
        record["model"] = json!("nemotron4-15b");
        let model = line(&record).unwrap().model;
        assert_eq!((&model["mlp_gate"], &model["hidden_act"]), (&json!(false), &json!("relu2")));
    }

    #[test]
    fn experts_may_be_in_each_second_layer() {
        let mut record = record();
        for (key, value) in
            [("experts", 128), ("topk", 1), ("moe_ffn", 8192), ("shared_expert_ffn", 8192), ("moe_every", 2)]
        {
            record["model_config"][key] = json!(value);
        }
        let model = line(&record).unwrap().model;
        assert_eq!((&model["num_experts"], &model["decoder_sparse_step"]), (&json!(128), &json!(2)));
    }

    /// A pipeline of torchtitan has as many micro-batches as ranks, and its own line in the tables.
    #[test]
    fn a_pipeline_has_the_default_number_of_microbatches() {
        let mut record = record();
        (record["tier"], record["micro_batch"], record["pp"], record["dp"]) =
            (json!("B"), Value::Null, json!(8), json!(4));
        (record["schedule"], record["vp"]) = (json!("interleaved-1F1B"), Value::Null);
        let run = line(&record).unwrap();
        assert!(run.parallel.starts_with("mbs=16,tp=8,pp=8") && run.parallel.contains("vp=2"), "{}", run.parallel);
        assert_eq!(run.source, "torchtitan, micro-batches by default");
        record["source_group"] = json!("Megatron-LM README/examples");
        assert_eq!(line(&record), None);
    }

    #[test]
    fn fine_tuning_has_the_adapters_of_its_publisher() {
        let mut record = record();
        (record["task"], record["source_group"]) = (json!("lora"), json!("NeMo docs / launcher"));
        record["notes"] = json!("SQuAD packed to 4096");
        let run = line(&record).unwrap();
        assert_eq!((run.lora.as_deref(), run.lengths.len()), (Some("32,alpha=32,q,k,v"), 16));
        assert_eq!(run.source, "NeMo docs / launcher, fine-tuning");
        record["task"] = json!("sft");
        assert_eq!(line(&record).unwrap().lora, None);
        record["task"] = json!("inference");
        assert_eq!(line(&record), None);
    }

    #[test]
    fn what_prints_no_time_is_left_out() {
        let mut derived = record();
        derived["derived"] = json!(["step_time_s", "tokens_per_s_per_gpu"]);
        let mut other = record();
        other["tier"] = json!("C");
        assert_eq!((line(&derived), line(&other)), (None, None));
    }
}
