//! The table. Defaults are those of the classes in `transformers` 5.24; `tests/transformers/compare.py` holds them against it.

use super::newer::NEWER;
use super::{Done, Key, ROPE};

const ALL: &[&str] = &[
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "gemma2",
    "gemma3_text",
    "olmo2",
    "phi3",
    "gpt_neox",
    "glm4_moe",
    "gpt_oss",
    "smollm3",
    "llama4_text",
    "gpt2",
];
/// Families with rotary positions: all but the last.
const ROTARY: &[&str] = match ALL.split_last() {
    Some((_, rotary)) => rotary,
    None => ALL,
};
/// Families of [`ROTARY`] whose rows are all in this file; `newer.rs` has more of the others.
const HERE: &[&str] =
    &["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"];
const QWEN: &[&str] = &["qwen2", "qwen3", "qwen2_moe", "qwen3_moe"];
const QWEN_MOE: &[&str] = &["qwen2_moe", "qwen3_moe"];
const DEEPSEEK: &[&str] = &["deepseek_v2", "deepseek_v3"];
const MOE: &[&str] = &["mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"];
const LLAMA: &[&str] = &["llama"];
const MISTRAL: &[&str] = &["mistral"];
const MIXTRAL: &[&str] = &["mixtral"];
const QWEN2: &[&str] = &["qwen2"];
const QWEN3: &[&str] = &["qwen3"];
const QWEN2_MOE: &[&str] = &["qwen2_moe"];
const QWEN3_MOE: &[&str] = &["qwen3_moe"];
const V2: &[&str] = &["deepseek_v2"];
const V3: &[&str] = &["deepseek_v3"];
const GPT2: &[&str] = &["gpt2"];
const SCALED: &[&str] = &[ROPE];
const FURTHER: &[&str] = &["deepseek_v3", "glm4_moe"];

pub(super) type Names = &'static [&'static str];

pub(super) const fn read(names: Names, families: Names, default: &'static str, about: &'static str) -> Key {
    Key { names, families, default, done: Done::Read, about }
}

pub(super) const fn only(names: Names, families: Names, default: &'static str, about: &'static str) -> Key {
    Key { names, families, default, done: Done::Only, about }
}

pub(super) const fn nothing(names: Names, families: Names, about: &'static str) -> Key {
    Key { names, families, default: "", done: Done::Nothing, about }
}

pub(super) const fn alias(names: Names, families: Names, of: &'static str) -> Key {
    Key { names, families, default: "", done: Done::Alias(of), about: "another name" }
}

/// The handling of each key. The classes ignore keys that are not listed here.
pub const KEYS: &[Key] = &joined::<{ TABLE.len() + NEWER.len() }>([TABLE, NEWER]);

const fn joined<const N: usize>([first, second]: [&[Key]; 2]) -> [Key; N] {
    let (mut all, mut at) = ([first[0]; N], 0);
    while at < N {
        all[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    all
}

const TABLE: &[Key] = &[
    read(&["model_type"], ALL, "", "the family"),
    read(&["vocab_size"], &["llama", "mistral", "mixtral"], "32000", VOCABULARY),
    read(&["vocab_size"], QWEN, "151936", VOCABULARY),
    read(&["vocab_size"], V2, "102400", VOCABULARY),
    read(&["vocab_size"], V3, "129280", VOCABULARY),
    read(&["vocab_size"], GPT2, "50257", VOCABULARY),
    read(&["hidden_size"], &["llama", "mistral", "mixtral", "qwen2", "qwen3", "deepseek_v2"], "4096", HIDDEN),
    read(&["hidden_size"], QWEN_MOE, "2048", HIDDEN),
    read(&["hidden_size"], V3, "7168", HIDDEN),
    read(&["intermediate_size"], &["llama", "deepseek_v2"], "11008", FEED_FORWARD),
    read(&["intermediate_size"], MISTRAL, "14336", FEED_FORWARD),
    read(&["intermediate_size"], MIXTRAL, "14336", "size between the matrices of an expert"),
    read(&["intermediate_size"], &["qwen2", "qwen3"], "22016", FEED_FORWARD),
    read(&["intermediate_size"], QWEN2_MOE, "5632", FEED_FORWARD),
    read(&["intermediate_size"], QWEN3_MOE, "6144", FEED_FORWARD),
    read(&["intermediate_size"], V3, "18432", FEED_FORWARD),
    read(&["num_hidden_layers"], &["llama", "mistral", "mixtral", "qwen2", "qwen3", "deepseek_v2"], "32", LAYERS),
    read(&["num_hidden_layers"], QWEN_MOE, "24", LAYERS),
    read(&["num_hidden_layers"], V3, "61", LAYERS),
    read(
        &["num_attention_heads"],
        &["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2"],
        "32",
        HEADS,
    ),
    read(&["num_attention_heads"], QWEN2_MOE, "16", HEADS),
    read(&["num_attention_heads"], V3, "128", HEADS),
    read(&["num_key_value_heads"], LLAMA, "null", KV_HEADS),
    read(&["num_key_value_heads"], &["mistral", "mixtral"], "8", KV_HEADS),
    read(&["num_key_value_heads"], &["qwen2", "qwen3"], "32", KV_HEADS),
    read(&["num_key_value_heads"], QWEN2_MOE, "16", KV_HEADS),
    read(&["num_key_value_heads"], QWEN3_MOE, "4", KV_HEADS),
    read(&["num_key_value_heads"], V2, "null", "the number of query heads"),
    read(&["num_key_value_heads"], V3, "128", "the number of query heads, also if absent"),
    read(&["head_dim"], &["llama", "mistral", "mixtral"], "null", HEAD),
    read(&["head_dim"], &["qwen2", "qwen2_moe", "qwen3_moe"], "", HEAD),
    read(&["head_dim"], QWEN3, "128", "size of a head"),
    nothing(&["head_dim", "qk_head_dim"], DEEPSEEK, "the class sets it by the sizes of the parts of a head"),
    read(&["hidden_act"], &["llama", "olmo2", "phi3", "smollm3", "llama4_text"], "\"silu\"", ACTIVATION),
    read(&["hidden_act"], &["gpt_neox"], "\"gelu\"", ACTIVATION),
    only(&["hidden_act"], MISTRAL_AND_BEYOND, "\"silu\"", "the feed-forward net is built with it"),
    read(&["max_position_embeddings"], &["llama", "deepseek_v2"], "2048", CONTEXT),
    read(&["max_position_embeddings"], &["mistral", "mixtral"], "131072", CONTEXT),
    read(&["max_position_embeddings"], QWEN, "32768", CONTEXT),
    read(&["max_position_embeddings"], V3, "4096", CONTEXT),
    read(
        &["initializer_range"],
        ALL,
        "0.02",
        "standard deviation of the initial matrices; those that write to the stream start smaller",
    ),
    read(&["rms_norm_eps"], ROTARY_BUT_MIXTRAL, "1e-6", "added in norms; those of latent vectors have 1e-6"),
    read(&["rms_norm_eps"], MIXTRAL, "1e-5", "added in norms"),
    read(&["tie_word_embeddings"], NOT_TIED, "false", "the head's matrix is the embedding table"),
    read(&["tie_word_embeddings"], GPT2, "true", "the head's matrix is the embedding table"),
    read(&["rope_parameters", "rope_scaling"], ROTARY, "null", "rotary frequencies: the keys of `rope` below"),
    read(&["rope_theta"], ROTARY_BUT_MIXTRAL, "10000.0", "base of the rotary frequencies"),
    read(&["rope_theta"], MIXTRAL, "1000000.0", "base of the rotary frequencies"),
    read(
        &["original_max_position_embeddings"],
        ROTARY_BUT_PHI,
        "",
        "context before scaling, over the one in `rope_parameters`",
    ),
    only(&["partial_rotary_factor"], WHOLE_HEADS, "1.0", "all of a head turns"),
    read(&["partial_rotary_factor"], &["phi3"], "1.0", TURNED),
    read(&["partial_rotary_factor"], &["glm4_moe"], "0.5", TURNED),
    read(&["rotary_pct"], &["gpt_neox"], "0.25", TURNED),
    nothing(&["rope_interleave"], DEEPSEEK, "the order of elements in a head; training does not depend on it"),
    only(&["attention_bias"], WITHOUT_BIAS, "false", "products of attention have no bias"),
    read(&["attention_bias"], WITH_BIAS, "false", "products of attention have a bias"),
    read(&["attention_bias"], &["glm4_moe"], "false", "queries, keys and values have a bias"),
    read(&["attention_bias"], &["gpt_neox", "gpt_oss"], "true", "products of attention have a bias"),
    only(&["attention_bias", "qkv_bias"], QWEN2, "true", "the class always has a bias of queries, keys and values"),
    read(&["qkv_bias"], QWEN2_MOE, "true", "queries, keys and values have a bias"),
    read(&["mlp_bias"], &["llama", "smollm3"], "false", "the products of the feed-forward net have biases"),
    only(&["mlp_bias"], MISTRAL_AND_BEYOND, "false", "the feed-forward net has no bias"),
    only(&["attention_dropout"], ROTARY, "0.0", "attention drops nothing"),
    read(&["sliding_window"], &["mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe"], "4096", WINDOW),
    read(&["sliding_window"], MIXTRAL, "null", WINDOW),
    read(&["use_sliding_window"], QWEN, "false", "`sliding_window` counts"),
    read(&["max_window_layers"], &["qwen2", "qwen3", "qwen2_moe"], "28", "which layers have the window"),
    nothing(&["max_window_layers"], WITHOUT_WINDOW_LAYERS, "the class does not read it"),
    read(
        &["layer_types"],
        &["qwen2", "qwen3", "qwen2_moe", "gemma2", "gemma3_text", "gpt_oss", "smollm3"],
        "null",
        "sliding_attention or full_attention, by layer",
    ),
    read(&["layer_types"], &["llama4_text"], "null", "chunked_attention or full_attention, by layer"),
    read(&["layer_types"], ONE_TYPE, "null", "full_attention for all layers"),
    nothing(&["pretraining_tp"], ROTARY, "how a product is summed up"),
    read(&["num_local_experts"], MIXTRAL, "8", EXPERTS),
    read(&["num_experts"], QWEN2_MOE, "60", EXPERTS),
    read(&["num_experts"], QWEN3_MOE, "128", EXPERTS),
    read(&["n_routed_experts"], V2, "64", EXPERTS),
    read(&["n_routed_experts"], V3, "256", EXPERTS),
    alias(&["num_experts"], MIXTRAL, "num_local_experts"),
    alias(&["num_local_experts"], QWEN3_MOE, "num_experts"),
    alias(&["num_experts"], V2, "n_routed_experts"),
    alias(&["num_local_experts"], V3, "n_routed_experts"),
    read(&["num_experts_per_tok"], MIXTRAL, "2", CHOSEN),
    read(&["num_experts_per_tok"], QWEN2_MOE, "4", CHOSEN),
    read(&["num_experts_per_tok"], &["qwen3_moe", "deepseek_v3"], "8", CHOSEN),
    read(&["num_experts_per_tok"], V2, "", CHOSEN),
    read(&["moe_intermediate_size"], QWEN2_MOE, "1408", "size between the matrices of an expert"),
    read(&["moe_intermediate_size"], QWEN3_MOE, "768", "size between the matrices of an expert"),
    read(&["moe_intermediate_size"], V2, "1407", "size between the matrices of an expert"),
    read(&["moe_intermediate_size"], V3, "2048", "size between the matrices of an expert"),
    read(&["shared_expert_intermediate_size"], QWEN2_MOE, "5632", "the same of the expert that all tokens take"),
    read(&["n_shared_experts"], V2, "2", "experts that all tokens take"),
    read(&["n_shared_experts"], V3, "1", "experts that all tokens take"),
    read(&["norm_topk_prob"], QWEN_MOE, "false", "a token's weights are made to add up to 1"),
    read(&["norm_topk_prob"], V3, "true", "a token's weights are made to add up to 1"),
    only(&["norm_topk_prob"], V2, "false", "the class does not read it, DeepSeek's own code does"),
    read(&["routed_scaling_factor"], V2, "1.0", "what weights are multiplied by"),
    read(&["routed_scaling_factor"], V3, "2.5", "what weights are multiplied by"),
    read(&["n_group"], V2, "null", "groups of experts"),
    read(&["n_group"], V3, "8", "groups of experts"),
    read(&["topk_group"], V2, "null", "groups that are open to a token"),
    read(&["topk_group"], V3, "4", "groups that are open to a token"),
    read(&["topk_method"], V2, "\"greedy\"", "greedy or group_limited_greedy"),
    only(&["topk_method"], V3, "\"noaux_tc\"", "the class has no other"),
    only(&["scoring_func"], V2, "\"softmax\"", "the class has no other"),
    only(&["scoring_func"], V3, "\"sigmoid\"", "the class has no other"),
    read(&["first_k_dense_replace"], V2, "0", "layers in front without experts"),
    read(&["first_k_dense_replace"], V3, "3", "layers in front without experts"),
    only(&["moe_layer_freq"], DEEPSEEK, "1", "the class does not read it"),
    read(&["decoder_sparse_step"], QWEN_MOE, "1", "one layer in this number has experts"),
    read(&["mlp_only_layers"], QWEN_MOE, "null", "layers without experts"),
    read(&["q_lora_rank"], DEEPSEEK, "1536", "size of the vector that queries come from; null: none"),
    read(&["kv_lora_rank"], DEEPSEEK, "512", "size of the vector that keys and values come from"),
    read(&["qk_nope_head_dim"], DEEPSEEK, "128", "size of the part of a head without positions"),
    read(&["qk_rope_head_dim"], DEEPSEEK, "64", "size of the part with positions"),
    read(&["v_head_dim"], DEEPSEEK, "128", "size of values"),
    only(&["output_router_logits"], SOFTMAX_MOE, "false", "the loss has no term of the router"),
    only(&["router_jitter_noise"], MIXTRAL, "0.0", "the router has no noise"),
    nothing(&["output_router_logits"], DEEPSEEK, "the loss of the class has no term of the router"),
    nothing(&["router_aux_loss_coef"], SOFTMAX_MOE, "counts with `output_router_logits` alone"),
    nothing(&["aux_loss_alpha", "seq_aux", "ep_size"], DEEPSEEK, "the class does not read it"),
    nothing(&["num_nextn_predict_layers", "num_mtp_layers"], V2, "the class does not read it"),
    read(&["num_nextn_predict_layers"], FURTHER, "0", "layers behind the others that predict further tokens"),
    alias(&["num_mtp_layers"], FURTHER, "num_nextn_predict_layers"),
    read(
        &["mtp_loss_scaling_factor"],
        FURTHER,
        "0.3",
        "an addition: the factor of the mean of their losses, which is added to the loss; 0: there are no such layers",
    ),
    read(
        &["capacity_factor"],
        MOE,
        "null",
        "an addition: how many tokens an expert takes, over its even share; null: all",
    ),
    read(&["routing_group"], MOE, "null", "an addition: tokens that are routed together; null: a sequence"),
    read(&["mlp_gate"], LLAMA, "true", "an addition: false for a feed-forward net of `relu2` without a gate"),
    read(&["n_positions"], GPT2, "1024", "positions of the table"),
    read(&["n_embd"], GPT2, "768", HIDDEN),
    read(&["n_layer"], GPT2, "12", LAYERS),
    read(&["n_head"], GPT2, "12", HEADS),
    read(&["n_inner"], GPT2, "null", "size of the feed-forward net; null: four times `n_embd`"),
    alias(&["hidden_size"], GPT2, "n_embd"),
    alias(&["max_position_embeddings"], GPT2, "n_positions"),
    alias(&["num_attention_heads"], GPT2, "n_head"),
    alias(&["num_hidden_layers"], GPT2, "n_layer"),
    read(&["activation_function"], GPT2, "\"gelu_new\"", "gelu, or gelu_new, which gelu_pytorch_tanh is too"),
    read(&["attn_pdrop", "resid_pdrop", "embd_pdrop"], GPT2, "0.1", "dropout, drawn from our own numbers"),
    read(&["layer_norm_epsilon"], GPT2, "1e-5", "added in norms"),
    only(&["scale_attn_weights"], GPT2, "true", "scores are scaled"),
    only(&["scale_attn_by_inverse_layer_idx", "add_cross_attention"], GPT2, "false", "attention has no such option"),
    nothing(&["reorder_and_upcast_attn"], GPT2, "in f32 it is the order of two products"),
    nothing(
        &[
            "n_ctx",
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
        ],
        GPT2,
        "not of the language model",
    ),
    read(&["post_norm"], GPT2, "false", "an addition: norms stand behind each sum"),
    only(&["per_layer_config"], ALL, "null", "all layers are alike"),
    nothing(
        &[
            "architectures",
            "transformers_version",
            "_name_or_path",
            "name_or_path",
            "_commit_hash",
            "auto_map",
            "tokenizer_class",
            "prefix",
            "task_specific_params",
            "finetuning_task",
            "id2label",
            "label2id",
            "num_labels",
            "problem_type",
        ],
        ALL,
        "where it came from, and other tasks",
    ),
    nothing(
        &["dtype", "torch_dtype", "use_bfloat16", "quantization_config", "pruned_heads"],
        ALL,
        "number formats of saved weights; `--precision` sets those of training",
    ),
    nothing(
        &[
            "attn_implementation",
            "_attn_implementation",
            "experts_implementation",
            "chunk_size_feed_forward",
            "gradient_checkpointing",
            "torchscript",
            "tf_legacy_loss",
            "use_cache",
            "output_attentions",
            "output_hidden_states",
            "return_dict",
            "is_decoder",
            "is_encoder_decoder",
            "tie_encoder_decoder",
            "cross_attention_hidden_size",
        ],
        ALL,
        "how `transformers` runs it, and what it returns besides the loss",
    ),
    nothing(
        &["bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id"],
        ALL,
        "the text determines the tokens",
    ),
    nothing(&["pad_token_id"], &["gpt2", "gpt_neox"], "the embedding has no padding"),
    read(&["pad_token_id"], HERE, "null", PAD),
    read(&["pad_token_id"], &["glm4_moe", "gpt_oss", "llama4_text"], "null", PAD),
    nothing(
        &[
            "assistant_confidence_threshold",
            "assistant_lookbehind",
            "bad_words_ids",
            "begin_suppress_tokens",
            "diversity_penalty",
            "do_sample",
            "early_stopping",
            "encoder_no_repeat_ngram_size",
            "encoder_repetition_penalty",
            "epsilon_cutoff",
            "eta_cutoff",
            "exponential_decay_length_penalty",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "length_penalty",
            "max_length",
            "min_length",
            "no_repeat_ngram_size",
            "num_assistant_tokens",
            "num_assistant_tokens_schedule",
            "num_beam_groups",
            "num_beams",
            "num_return_sequences",
            "output_scores",
            "remove_invalid_values",
            "repetition_penalty",
            "return_dict_in_generate",
            "suppress_tokens",
            "target_lookbehind",
            "temperature",
            "top_k",
            "top_p",
            "typical_p",
        ],
        ALL,
        "how text is generated",
    ),
    read(&["rope_type"], SCALED, "\"default\"", "default, linear, llama3, yarn or longrope; `type` in older files"),
    read(&["type"], SCALED, "\"default\"", "the kind, where `rope_type` does not say it"),
    read(&["rope_theta"], SCALED, "", "base of the frequencies, over the file's own"),
    read(&["factor"], SCALED, "", "what low frequencies are divided by"),
    read(&["low_freq_factor", "high_freq_factor"], SCALED, "", "llama3: turns that bound low and high frequencies"),
    read(&["original_max_position_embeddings"], SCALED, "", "context before scaling; else `max_position_embeddings`"),
    read(&["beta_fast"], SCALED, "32", "yarn: turns from which a frequency is unchanged; null or 0: 32"),
    read(&["beta_slow"], SCALED, "1", "yarn: turns up to which a frequency is lowered; null or 0: 1"),
    read(&["truncate"], SCALED, "true", "yarn: bounds are rounded outwards to full pairs"),
    read(&["attention_factor"], SCALED, "null", "yarn and longrope: what turned queries and keys are multiplied by"),
    read(
        &["mscale", "mscale_all_dim"],
        SCALED,
        "null",
        "yarn: where that comes from; DeepSeek: and the scores' factor",
    ),
    read(
        &["partial_rotary_factor"],
        SCALED,
        "",
        "the part of a head that turns; 1.0 but for phi3, gpt_neox and glm4_moe",
    ),
    read(
        &["short_factor"],
        SCALED,
        "",
        "longrope: divisors of frequencies in sequences up to the context before scaling",
    ),
    read(&["long_factor"], SCALED, "", "longrope: those in longer sequences"),
    only(&["mrope_section"], SCALED, "null", "of a kind that is not supported"),
    nothing(&["finetuned"], SCALED, "no class reads it"),
];

pub(super) const VOCABULARY: &str = "size of the vocabulary";
pub(super) const HIDDEN: &str = "size of the residual stream";
pub(super) const FEED_FORWARD: &str = "size between the matrices of the feed-forward net";
pub(super) const LAYERS: &str = "number of layers";
pub(super) const HEADS: &str = "query heads";
pub(super) const KV_HEADS: &str = "key and value heads; null: the number of query heads";
pub(super) const HEAD: &str = "size of a head; null or absent: `hidden_size` over the heads";
pub(super) const CONTEXT: &str = "context before scaling, unless another key states it";
pub(super) const WINDOW: &str = "tokens that attention sees, the last ones; null: all";
pub(super) const EXPERTS: &str = "how many experts a token can be sent to";
pub(super) const CHOSEN: &str = "how many it is sent to";
pub(super) const PAD: &str = "its row of the embedding learns nothing at its own positions";
const TURNED: &str = "the part of a head that positions turn";
const ACTIVATION: &str = "silu, gelu, gelu_pytorch_tanh or relu2";

const MISTRAL_AND_BEYOND: &[&str] =
    &["mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"];
const ROTARY_BUT_MIXTRAL: &[&str] =
    &["llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"];
const ROTARY_BUT_PHI: &[&str] = &[
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "gemma2",
    "gemma3_text",
    "olmo2",
    "gpt_neox",
    "glm4_moe",
    "gpt_oss",
    "smollm3",
    "llama4_text",
];
const NOT_TIED: &[&str] = &[
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "olmo2",
    "phi3",
    "gpt_neox",
    "glm4_moe",
    "gpt_oss",
    "llama4_text",
];
const WHOLE_HEADS: &[&str] = &[
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "gemma2",
    "gemma3_text",
    "olmo2",
    "gpt_oss",
    "smollm3",
    "llama4_text",
];
const WITHOUT_BIAS: &[&str] = &["mistral", "mixtral", "qwen2_moe", "deepseek_v2", "deepseek_v3", "phi3"];
const WITH_BIAS: &[&str] = &["llama", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "olmo2", "smollm3", "llama4_text"];
const ONE_TYPE: &[&str] = &["llama", "mistral", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"];
const WITHOUT_WINDOW_LAYERS: &[&str] = &["llama", "mistral", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"];
const SOFTMAX_MOE: &[&str] = &["mixtral", "qwen2_moe", "qwen3_moe"];
