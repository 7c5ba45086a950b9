//! Keys that several families share, and what they mean.

use crate::models::keys::Key;

/// The keys of all families.
pub(in crate::models::families) const EVERY: &[Key] = &[
    Key::read(&["model_type"], "", "the family"),
    Key::read(&["initializer_range"], "0.02", DEVIATION),
    Key::only(&["per_layer_config"], "null", "all layers are alike"),
    Key::nothing(
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
        "where it came from, and other tasks",
    ),
    Key::nothing(
        &["dtype", "torch_dtype", "use_bfloat16", "quantization_config", "pruned_heads"],
        "number formats of saved weights; `--precision` sets those of training",
    ),
    Key::nothing(
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
        "how `transformers` runs it, and what it returns besides the loss",
    ),
    Key::nothing(
        &["bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id"],
        "the text determines the tokens",
    ),
    Key::nothing(
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
        "how text is generated",
    ),
];

/// The keys of all families with rotary positions.
pub(in crate::models::families) const ROTARY: &[Key] = &[
    Key::read(&["tie_word_embeddings"], "false", TIED),
    Key::read(&["rope_parameters", "rope_scaling"], "null", "rotary frequencies: the keys of `rope` below"),
    Key::read(&["original_max_position_embeddings"], "", "context before scaling, over the one in `rope_parameters`"),
    Key::read(&["attention_dropout"], "0.0", DROPOUT),
    Key::nothing(&["pretraining_tp"], "how a product is summed up"),
    Key::read(&["pad_token_id"], "null", PAD),
];

/// The keys of families all of whose layers are alike.
pub(in crate::models::families) const ONE_TYPE: &[Key] = &[
    Key::nothing(&["max_window_layers"], UNREAD),
    Key::read(&["layer_types"], "null", "full_attention for all layers"),
];

/// The keys of a feed-forward net that has no options.
pub(in crate::models::families) const FIXED_NET: &[Key] = &[
    Key::only(&["hidden_act"], "\"silu\"", "the feed-forward net is built with it"),
    Key::only(&["mlp_bias"], "false", "the feed-forward net has no bias"),
];

/// The keys that are additions to experts.
pub(in crate::models::families) const ROUTED: &[Key] = &[
    Key::read(
        &["capacity_factor"],
        "null",
        "an addition: how many tokens an expert takes, over its even share; null: all",
    ),
    Key::read(&["routing_group"], "null", "an addition: tokens that are routed together; null: a sequence"),
    Key::read(
        &["router_balance"],
        "null",
        "an addition: a loss of uneven routing, of each sequence, of a micro_batch, of its layers together or of the global_batch; null: none",
    ),
    Key::read(&["router_balance_coef"], "null", "an addition: the factor of that loss"),
    Key::read(&["router_z_loss_coef"], "null", "an addition: the factor of the mean square of the logits' log-sum-exp"),
    Key::read(
        &["router_bias_update_rate"],
        "null",
        "an addition: how far a step moves the bias of an expert towards even counts; null: not at all",
    ),
    Key::read(&["router_counts"], "false", "an addition: tokens by layer and expert are noted in `routing.jsonl`"),
];

/// The keys of a loss of the router.
pub(in crate::models::families) const ROUTER_LOSS: &[Key] = &[
    Key::read(
        &["output_router_logits"],
        "false",
        "true: the loss of uneven routing of `transformers`, over all layers",
    ),
    Key::read(&["router_aux_loss_coef"], "0.001", "its factor"),
];

/// The keys of layers that predict further tokens.
pub(in crate::models::families) const FURTHER: &[Key] = &[
    Key::read(&["num_nextn_predict_layers"], "0", "layers behind the others that predict further tokens"),
    Key::alias(&["num_mtp_layers"], "num_nextn_predict_layers"),
    Key::read(
        &["mtp_loss_scaling_factor"],
        "0.3",
        "an addition: the factor of the mean of their losses, which is added to the loss; 0: there are no such layers",
    ),
];

/// The part of a head that turns, where it is all.
pub(in crate::models::families) const WHOLE_HEADS: Key =
    Key::only(&["partial_rotary_factor"], "1.0", "all of a head turns");

/// The types of layers, of which some have a window.
pub(in crate::models::families) const LAYER_TYPES: Key =
    Key::read(&["layer_types"], "null", "sliding_attention or full_attention, by layer");

pub(in crate::models::families) const DEVIATION: &str =
    "standard deviation of the initial matrices; those that write to the stream start smaller";
/// The ratio of the largest to the smallest frequency of waves of positions (Vaswani et al. 2017, section 3.5).
pub(in crate::models::families) const WAVES: f64 = 10_000.0;
pub(in crate::models::families) const VOCABULARY: &str = "size of the vocabulary";
pub(in crate::models::families) const HIDDEN: &str = "size of the residual stream";
pub(in crate::models::families) const FEED_FORWARD: &str = "size between the matrices of the feed-forward net";
pub(in crate::models::families) const LAYERS: &str = "number of layers";
pub(in crate::models::families) const HEADS: &str = "query heads";
pub(in crate::models::families) const KV_HEADS: &str = "key and value heads; null: the number of query heads";
pub(in crate::models::families) const HEAD: &str = "size of a head; null or absent: `hidden_size` over the heads";
pub(in crate::models::families) const CONTEXT: &str = "context before scaling, unless another key states it";
pub(in crate::models::families) const WINDOW: &str = "tokens that attention sees, the last ones; null: all";
pub(in crate::models::families) const EXPERTS: &str = "how many experts a token can be sent to";
pub(in crate::models::families) const CHOSEN: &str = "how many it is sent to";
pub(in crate::models::families) const PAD: &str = "its row of the embedding learns nothing at its own positions";
pub(in crate::models::families) const TURNED: &str = "the part of a head that positions turn";
pub(in crate::models::families) const ACTIVATION: &str = "silu, gelu, gelu_pytorch_tanh, quick_gelu, relu or relu2";
pub(in crate::models::families) const DROPOUT: &str = "dropout, drawn from our own numbers";
pub(in crate::models::families) const NET_BIAS: &str = "the products of the feed-forward net have biases";
pub(in crate::models::families) const HEADS_NORMED: &str = "queries and keys are normed head by head";
pub(in crate::models::families) const ALWAYS_NORMED: &str = "the class always has norms of queries and keys";
pub(in crate::models::families) const LAYER_NORM_EPS: &str = "added in layer norms";
pub(in crate::models::families) const CLIP: &str = "bound of queries, keys and values; null: none";
pub(in crate::models::families) const PARALLEL: &str = "attention and the feed-forward net read the same";
pub(in crate::models::families) const SPARSE_LAYERS: &str = "dense or sparse, by layer";
pub(in crate::models::families) const POSITIONS: &str = "positions of the table";
pub(in crate::models::families) const NORM_EPS: &str = "added in norms";
pub(in crate::models::families) const THETA: &str = "base of the rotary frequencies";
pub(in crate::models::families) const TIED: &str = "the head's matrix is the embedding table";
pub(in crate::models::families) const EXPERT_SIZE: &str = "size between the matrices of an expert";
pub(in crate::models::families) const UNREAD: &str = "the class does not read it";
pub(in crate::models::families) const HEAD_SIZE: &str = "size of a head";
pub(in crate::models::families) const BIAS: &str = "products of attention have a bias";
pub(in crate::models::families) const SHARED: &str = "experts that all tokens take";
pub(in crate::models::families) const SCALE: &str = "what weights are multiplied by";
pub(in crate::models::families) const RENORMALISE: &str = "a token's weights are made to add up to 1";
pub(in crate::models::families) const LATENT_EPS: &str = "added in norms; those of latent vectors have 1e-6";
pub(in crate::models::families) const GROUPS: &str = "groups of experts";
pub(in crate::models::families) const OPEN_GROUPS: &str = "groups that are open to a token";
pub(in crate::models::families) const DENSE_FIRST: &str = "layers in front without experts";
pub(in crate::models::families) const LOGIT_BOUND: &str = "bound of logits; null: none";
pub(in crate::models::families) const NO_BIAS: &str = "products of attention have no bias";
pub(in crate::models::families) const QKV_BIAS: &str = "queries, keys and values have a bias";
pub(in crate::models::families) const NO_ROUTER_LOSS: &str = "the loss of the class has no term of the router";
