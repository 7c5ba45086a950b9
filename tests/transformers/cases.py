"""The models that are compared: small ones of each family, with all options of their classes that change numbers."""

# What all have in common unless they say otherwise. Few tokens and experts that differ keep ties between experts out.
ROTARY = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
LATENT = dict(
    ROTARY,
    num_key_value_heads=4,
    q_lora_rank=12,
    kv_lora_rank=10,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    v_head_dim=5,
    n_routed_experts=6,
    n_shared_experts=1,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    first_k_dense_replace=1,
)
THIRD = dict(LATENT, n_group=3, topk_group=2)
# Many heads of an indexer, so that few scores are zero: classes choose among equal ones at will.
INDEXED = dict(THIRD, index_topk=5, index_n_heads=12, index_head_dim=8)
AXK2 = dict({key: value for key, value in LATENT.items() if key != "first_k_dense_replace"}, index_topk=5, index_n_heads=12, index_head_dim=8, gated_norm_rank=6, mlp_layer_types=["dense", "sparse"])
SOFTMAX = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)
# A factor at which the loss of uneven routing counts.
BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.5)
SECOND = dict(ROTARY, **SOFTMAX, shared_expert_intermediate_size=20)
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
WINDOWS = dict(ROTARY, num_hidden_layers=3, sliding_window=5)
GEMMA = dict(WINDOWS, head_dim=8, query_pre_attn_scalar=12)
GEMMA4 = dict(WINDOWS, head_dim=8, global_head_dim=12, layer_types=["sliding_attention", "full_attention", "full_attention"])
OSS = dict(WINDOWS, head_dim=8, num_local_experts=6, num_experts_per_tok=2, intermediate_size=16)
GLM = dict(
    ROTARY,
    head_dim=8,
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    routed_scaling_factor=1.5,
    use_qk_norm=True,
    attention_bias=True,
)
GLM_LIKE = {key: value for key, value in dict(GLM, n_shared_experts=1, first_k_dense_replace=1).items() if key not in ("use_qk_norm", "attention_bias")}
OPT_LIKE = dict(vocab_size=61, hidden_size=24, max_position_embeddings=32)
LLAMA4 = dict(
    ROTARY,
    head_dim=8,
    num_hidden_layers=4,
    intermediate_size=16,
    intermediate_size_mlp=40,
    num_local_experts=4,
    attention_chunk_size=5,
    floor_scale=3,
    no_rope_layer_interval=2,
)
NO_DROPOUT = dict(attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
GPT2 = dict(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=4, **NO_DROPOUT)


def yarn(**more):
    return dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=10000.0, **more)


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
    rope_theta=500000.0,
)



def longrope(pairs, **more):
    short, long = [[1.0 + by * pair for pair in range(pairs)] for by in (0.1, 0.9)]
    return dict(rope_type="longrope", short_factor=short, long_factor=long, rope_theta=10000.0, **more)


PART = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
LOCAL = dict(
    full_attention=dict(rope_type="linear", factor=4.0, rope_theta=5000.0),
    sliding_attention=dict(rope_type="default", rope_theta=100.0),
)
EACH = dict(full_attention=yarn(mscale=0.7, mscale_all_dim=0.3), sliding_attention=longrope(4, factor=2.0, original_max_position_embeddings=8))
NEOX = dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, max_position_embeddings=64)

GRANITE = dict(ROTARY, embedding_multiplier=6.0, logits_scaling=3.0, residual_multiplier=0.4, attention_multiplier=0.3)
FOURTH = dict(ROTARY, num_hidden_layers=4, sliding_window=5, head_dim=8)
COHERE = dict(ROTARY, logit_scale=0.4, pad_token_id=2)
LITE = {key: value for key, value in THIRD.items() if key != "first_k_dense_replace"}
GPTJ = dict(vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4)
OPT = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
ERNIE = dict(ROTARY, moe_num_experts=6, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=1, pad_token_id=2)

FALCON = dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
GROWING = dict(rope_type="default", rope_theta=500.0, llama_4_scaling_beta=0.5, original_max_position_embeddings=4)
MLA = {key: value for key, value in LATENT.items() if key.endswith(("_size", "_layers", "_heads", "_embeddings", "_dim", "_rank")) and not key.startswith("moe")}

DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=8, linear_conv_kernel_dim=4)
# Keys of fewer elements are short at times, and unit vectors of them then hang on rounding.
NEXT = dict(SECOND, **DELTA, head_dim=8, full_attention_interval=2)

MAMBA = dict(mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=10, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=5)
# Heads of an even half, which turns.
BAMBA = dict(dict(ROTARY, **MAMBA), hidden_size=32, mamba_n_heads=8)
MAMBA1 = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, state_size=6)
JAMBA = dict(
    {key: value for key, value in ROTARY.items() if key != "max_position_embeddings"},
    attn_layer_period=2,
    attn_layer_offset=1,
    expert_layer_offset=0,
    num_experts=6,
    mamba_d_state=6,
    mamba_dt_rank=5,
    pad_token_id=2,
)
MAMBA2 = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_heads=6, head_dim=8, n_groups=2, state_size=10, chunk_size=5)
GRANITE_HYBRID = dict(
    GRANITE,
    **MAMBA,
    num_hidden_layers=3,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    num_local_experts=6,
    num_experts_per_tok=2,
    intermediate_size=16,
    shared_intermediate_size=20,
)
OLMO_HYBRID = dict(ROTARY, **DELTA, layer_types=["linear_attention", "full_attention"], pad_token_id=2)
KIMI_LINEAR = dict(
    {key: value for key, value in LATENT.items() if key not in ("q_lora_rank", "n_routed_experts", "n_shared_experts", "max_position_embeddings")},
    num_local_experts=6,
    layer_types=["linear_attention", "full_attention"],
    linear_head_dim=16,
    linear_num_heads=4,
    pad_token_id=2,
)
LFM2 = dict(ROTARY, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], pad_token_id=2, block_multiple_of=4)
LFM3 = dict(ROTARY, head_dim=8, num_hidden_layers=4, sliding_window=5, pad_token_id=2, layer_types=["conv", "sliding_attention", "full_attention", "conv"])
LARA = dict(
    {key: value for key, value in SECOND.items() if key != "intermediate_size"},
    **DELTA,
    head_dim=8,
    sliding_window=5,
    layer_types=["linear_attention", "sliding_attention"],
)
LING = dict(
    {key: value for key, value in LATENT.items() if key not in ("q_lora_rank", "n_routed_experts", "n_shared_experts", "max_position_embeddings")},
    num_local_experts=6,
    n_group=3,
    topk_group=2,
    head_dim=16,
    layer_types=["linear_attention", "full_attention"],
    pad_token_id=2,
)
BEAM = dict(
    WINDOWS,
    head_dim=8,
    num_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    n_group=3,
    topk_group=2,
    layer_types=TYPES,
    mlp_layer_types=["dense", "sparse", "sparse"],
)
MINIMAX = dict(ROTARY, num_local_experts=6, num_experts_per_tok=2, intermediate_size=16, head_dim=8, block_size=5, num_hidden_layers=3)
MINIMAX_M3 = dict(
    ROTARY,
    head_dim=8,
    num_local_experts=6,
    num_experts_per_tok=2,
    intermediate_size=16,
    dense_intermediate_size=40,
    shared_intermediate_size=20,
    mlp_layer_types=["dense", "sparse"],
)
# Heads come in pairs, of which ranks have whole ones.
DIFFERENCES = dict(ROTARY, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=8)
GRIFFIN = dict({key: value for key, value in ROTARY.items() if key != "max_position_embeddings"}, num_hidden_layers=3, num_attention_heads=2, attention_window_size=5)
FALCON_H1 = dict(ROTARY, **MAMBA, mamba_d_ssm=48, pad_token_id=2)
NEMOTRON_H = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    layers_block_type=["linear_attention", "moe", "full_attention", "mlp"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    mamba_num_heads=6,
    mamba_head_dim=8,
    ssm_state_size=10,
    n_groups=2,
    chunk_size=5,
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    moe_shared_expert_intermediate_size=20,
    routed_scaling_factor=1.5,
)

# No token is padding: the classes of RoBERTa give such a token no position of its own.
BERT = dict(
    vocab_size=61,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
CAUSAL = dict(BERT, is_decoder=True)
ROBERTA = dict(CAUSAL, pad_token_id=3)
DECODER = dict(
    vocab_size=61,
    d_model=24,
    encoder_layers=3,
    encoder_attention_heads=2,
    decoder_layers=2,
    decoder_attention_heads=4,
    decoder_ffn_dim=40,
    max_position_embeddings=32,
    dropout=0.0,
    attention_dropout=0.0,
    pad_token_id=1,
)
TROCR = {key: value for key, value in DECODER.items() if not key.startswith("encoder_")}
COHERE_MOE = dict(COHERE, num_experts=6, intermediate_size=16, head_dim=8, num_hidden_layers=4, sliding_window=5, tie_word_embeddings=False)
WAVED = dict(vocab_size=61, d_model=24, num_layers=2, attention_heads=4, ffn_dim=40, dropout=0.0, attention_dropout=0.0, pad_token_id=1)
SARVAM = {key: value for key, value in GLM.items() if key not in ("use_qk_norm", "attention_bias")}

DBRX = dict(
    vocab_size=61,
    d_model=24,
    n_heads=4,
    n_layers=2,
    max_seq_len=32,
    attn_config=dict(kv_n_heads=2, clip_qkv=0.5, rope_theta=10000.0),
    ffn_config=dict(ffn_hidden_size=16, moe_num_experts=6, moe_top_k=2),
)
BLOOM = dict(vocab_size=61, hidden_size=24, n_layer=2)
MPT = dict(vocab_size=61, d_model=24, n_layers=2, max_seq_len=32)
NEOX_JAPANESE = dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_multiple_size=2, max_position_embeddings=64, attention_dropout=0.0)
MODERN = {key: value for key, value in dict(ROTARY, num_hidden_layers=4, pad_token_id=2, local_attention=10).items() if key != "num_key_value_heads"}
# All pairs turn by the first of three positions, which are one in text.
TURN = dict(rope_type="default", rope_theta=500.0, mrope_section=[1, 1, 1])
COMPASS = dict(COHERE, num_hidden_layers=3, sliding_window=5, layer_types=TYPES)
MIMO = dict(
    ROTARY,
    num_attention_heads=8,
    num_hidden_layers=3,
    head_dim=8,
    v_head_dim=6,
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    sliding_window=5,
    layer_types=TYPES,
    pad_token_id=2,
)
XLM = dict(vocab_size=61, emb_dim=24, n_layers=2, n_heads=4, max_position_embeddings=32, dropout=0.0, attention_dropout=0.0)
MOSHI = dict({key: value for key, value in ROTARY.items() if key not in ("intermediate_size", "num_key_value_heads")}, ffn_dim=40)
LAGUNA = dict(ROTARY, **SOFTMAX, num_hidden_layers=3, head_dim=8, sliding_window=5, shared_expert_intermediate_size=20, pad_token_id=2, layer_types=TYPES)

# Name, family, options of the class.
CASES = [
    ("llama", "llama", ROTARY),
    ("llama-many-keys-tied", "llama", dict(ROTARY, num_key_value_heads=None, tie_word_embeddings=True)),
    ("llama-head", "llama", dict(ROTARY, head_dim=10, rms_norm_eps=1e-5, rope_parameters=dict(rope_theta=500.0))),
    ("llama-pad", "llama", dict(ROTARY, pad_token_id=7, bos_token_id=3)),
    ("llama-linear", "llama", dict(ROTARY, rope_parameters=dict(rope_type="linear", factor=3.0))),
    ("llama-llama3", "llama", dict(ROTARY, head_dim=16, rope_parameters=LLAMA3)),
    ("llama-yarn", "llama", dict(ROTARY, head_dim=16, rope_parameters=yarn())),
    ("llama-yarn-exact", "llama", dict(ROTARY, head_dim=16, rope_parameters=yarn(truncate=False, beta_fast=8.0))),
    ("llama-biases", "llama", dict(ROTARY, attention_bias=True, mlp_bias=True, hidden_act="gelu")),
    ("llama-yarn-factor", "llama", dict(ROTARY, rope_parameters=yarn(attention_factor=0.8, beta_slow=2.0))),
    ("llama-longrope", "llama", dict(ROTARY, rope_parameters=longrope(3, factor=3.0, original_max_position_embeddings=8))),
    ("llama-documents", "llama", dict(ROTARY, rope_parameters=yarn())),
    ("mistral", "mistral", ROTARY),
    ("mistral-whole", "mistral", dict(ROTARY, sliding_window=None, rope_parameters=dict(rope_theta=1e6))),
    ("mistral-window", "mistral", dict(ROTARY, sliding_window=5)),
    ("qwen2", "qwen2", ROTARY),
    ("qwen2-window", "qwen2", dict(WINDOWS, use_sliding_window=True, max_window_layers=1)),
    ("qwen2-tied-yarn", "qwen2", dict(ROTARY, tie_word_embeddings=True, rope_parameters=yarn(mscale=0.7, mscale_all_dim=0))),
    ("qwen3", "qwen3", dict(ROTARY, head_dim=8)),
    ("qwen3-tied", "qwen3", dict(ROTARY, head_dim=6, tie_word_embeddings=True, use_sliding_window=True, sliding_window=16)),
    ("qwen3-types", "qwen3", dict(WINDOWS, head_dim=6, use_sliding_window=True, layer_types=TYPES, attention_bias=True)),
    ("mixtral-window", "mixtral", dict(ROTARY, num_local_experts=4, sliding_window=3)),
    ("mixtral", "mixtral", dict(ROTARY, num_local_experts=6, pad_token_id=-1)),
    ("mixtral-tied", "mixtral", dict(ROTARY, num_local_experts=4, num_experts_per_tok=3, tie_word_embeddings=True)),
    ("mixtral-balanced", "mixtral", dict(ROTARY, num_local_experts=6, **BALANCED)),
    ("qwen2-moe", "qwen2_moe", SECOND),
    ("qwen2-moe-renormalised", "qwen2_moe", dict(SECOND, norm_topk_prob=True, qkv_bias=False, mlp_only_layers=[0])),
    ("qwen2-moe-far-gate", "qwen2_moe", dict(SECOND)),
    ("qwen2-moe-window", "qwen2_moe", dict(SECOND, num_hidden_layers=4, decoder_sparse_step=2, use_sliding_window=True, sliding_window=5)),
    ("qwen3-moe-window", "qwen3_moe", dict(ROTARY, **SOFTMAX, use_sliding_window=True, sliding_window=6, mlp_only_layers=[1])),
    ("qwen3-moe", "qwen3_moe", dict(ROTARY, **SOFTMAX)),
    ("qwen3-moe-renormalised", "qwen3_moe", dict(ROTARY, **SOFTMAX, norm_topk_prob=True, decoder_sparse_step=2)),
    ("qwen3-moe-balanced", "qwen3_moe", dict(dict(ROTARY, num_hidden_layers=3), **SOFTMAX, **BALANCED, mlp_only_layers=[1])),
    ("deepseek-v2", "deepseek_v2", dict(LATENT, routed_scaling_factor=2.0)),
    (
        "deepseek-v2-groups",
        "deepseek_v2",
        dict(LATENT, topk_method="group_limited_greedy", n_group=3, topk_group=2, q_lora_rank=None, rms_norm_eps=1e-5),
    ),
    ("deepseek-v2-yarn", "deepseek_v2", dict(LATENT, rope_parameters=yarn(mscale=0.707, mscale_all_dim=0.707))),
    ("deepseek-v3", "deepseek_v3", THIRD),
    ("deepseek-v3-plain", "deepseek_v3", dict(THIRD, norm_topk_prob=False, q_lora_rank=None, n_shared_experts=2)),
    ("deepseek-v3-eps", "deepseek_v3", dict(THIRD, rms_norm_eps=1e-5, rope_interleave=False)),
    ("deepseek-v3-dense", "deepseek_v3", dict(THIRD, first_k_dense_replace=2, tie_word_embeddings=True)),
    ("deepseek-v3-yarn", "deepseek_v3", dict(THIRD, rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0))),
    ("deepseek-v3-yarn-turned", "deepseek_v3", dict(THIRD, rope_parameters=yarn(mscale=1.0, mscale_all_dim=0, truncate=False))),
    ("deepseek-v3-far-router", "deepseek_v3", THIRD),
    ("deepseek-v3-longrope", "deepseek_v3", dict(THIRD, rope_parameters=longrope(2, original_max_position_embeddings=8))),
    ("gemma4-unified", "gemma4_unified_text", GEMMA4),
    (
        "gemma4-unified-values",
        "gemma4_unified_text",
        dict(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=2, final_logit_softcapping=5.0, attention_bias=True),
    ),
    ("gemma4", "gemma4_text", dict(GEMMA4, vocab_size_per_layer_input=61, hidden_size_per_layer_input=24)),
    ("gemma4-plain", "gemma4_text", dict(GEMMA4, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=2, tie_word_embeddings=False)),
    ("deepseek-v32", "deepseek_v32", INDEXED),
    ("deepseek-v32-whole", "deepseek_v32", dict(INDEXED, index_topk=64, tie_word_embeddings=True)),
    ("deepseek-v32-yarn", "deepseek_v32", dict(INDEXED, index_head_dim=4, rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0))),
    ("axk2", "axk2", AXK2),
    ("axk2-sparse", "axk2", dict(AXK2, index_topk=4, mlp_layer_types=["sparse", "sparse"], rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0))),
    ("glm-dsa", "glm_moe_dsa", dict(INDEXED, index_topk=4)),
    ("glm-dsa-shared", "glm_moe_dsa", dict(INDEXED, num_hidden_layers=4, indexer_types=["full", "shared", "full", "shared"])),
    ("deepseek-v3-further", "deepseek_v3", dict(THIRD, num_mtp_layers=1)),
    ("gemma2", "gemma2", GEMMA),
    ("gemma2-bounded", "gemma2", dict(GEMMA, attn_logit_softcapping=0.7, final_logit_softcapping=2.0, attention_bias=True)),
    ("gemma2-unbounded", "gemma2", dict(GEMMA, attn_logit_softcapping=None, final_logit_softcapping=None, layer_types=TYPES)),
    ("gemma3", "gemma3_text", dict(GEMMA, num_hidden_layers=7)),
    ("gemma3-scaled", "gemma3_text", dict(GEMMA, layer_types=TYPES, final_logit_softcapping=3.0, rope_parameters=LOCAL)),
    ("gemma3-yarn", "gemma3_text", dict(GEMMA, layer_types=TYPES, rope_parameters=dict(LOCAL, full_attention=yarn(truncate=False)))),
    ("gemma3-each", "gemma3_text", dict(GEMMA, layer_types=TYPES, rope_parameters=EACH)),
    ("olmo2", "olmo2", ROTARY),
    ("olmo2-many-keys", "olmo2", dict(ROTARY, num_key_value_heads=None, attention_bias=True, rope_parameters=dict(rope_theta=500.0))),
    ("phi3", "phi3", dict(ROTARY, pad_token_id=2)),
    ("phi3-window", "phi3", dict(ROTARY, hidden_size=32, sliding_window=4, pad_token_id=2, rope_parameters=PART)),
    ("phi3-long", "phi3", dict(ROTARY, pad_token_id=2, original_max_position_embeddings=8, rope_parameters=longrope(3))),
    (
        "phi3-short",
        "phi3",
        dict(
            ROTARY,
            hidden_size=32,
            pad_token_id=2,
            tie_word_embeddings=True,
            original_max_position_embeddings=16,
            rope_parameters=longrope(2, partial_rotary_factor=0.5),
        ),
    ),
    ("phi3-documents", "phi3", dict(ROTARY, pad_token_id=2, original_max_position_embeddings=8, rope_parameters=longrope(3))),
    ("gpt-neox", "gpt_neox", dict(NEOX)),
    ("gpt-neox-sequential", "gpt_neox", dict(NEOX, use_parallel_residual=False, hidden_act="gelu_fast", rope_parameters=PART)),
    ("glm4-moe", "glm4_moe", GLM),
    ("glm4-moe-groups", "glm4_moe", dict(GLM, n_group=3, topk_group=2, use_qk_norm=False, norm_topk_prob=False, num_hidden_layers=3)),
    ("glm4-moe-yarn", "glm4_moe", dict(GLM, rope_parameters=yarn(partial_rotary_factor=0.5))),
    ("glm4-moe-further", "glm4_moe", dict(GLM, num_mtp_layers=2, tie_word_embeddings=True)),
    ("olmo3", "olmo3", dict(ROTARY, num_hidden_layers=4, sliding_window=5, pad_token_id=2)),
    (
        "olmo3-yarn",
        "olmo3",
        dict(
            WINDOWS,
            layer_types=TYPES,
            pad_token_id=None,
            attention_bias=True,
            rope_parameters=dict(
                full_attention=yarn(), sliding_attention=dict(rope_type="default", rope_theta=10000.0)
            ),
        ),
    ),
    ("arcee", "arcee", dict(ROTARY, head_dim=8, mlp_bias=True)),
    ("arcee-yarn", "arcee", dict(ROTARY, attention_bias=True, rope_parameters=yarn())),
    ("smollm3", "smollm3", dict(ROTARY, num_hidden_layers=4, pad_token_id=2)),
    ("smollm3-yarn", "smollm3", dict(ROTARY, num_hidden_layers=4, pad_token_id=2, rope_parameters=yarn())),
    (
        "smollm3-window",
        "smollm3",
        dict(
            ROTARY,
            num_hidden_layers=3,
            pad_token_id=None,
            no_rope_layers=[0, 1, 0],
            use_sliding_window=True,
            sliding_window=5,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
        ),
    ),
    ("llama4", "llama4_text", dict(LLAMA4, interleave_moe_layer_step=2)),
    ("llama4-yarn", "llama4_text", dict(LLAMA4, rope_parameters=yarn())),
    ("llama4-yarn-plain", "llama4_text", dict(LLAMA4, use_qk_norm=False, rope_parameters=yarn(attention_factor=1.7))),
    ("llama4-documents", "llama4_text", dict(LLAMA4, interleave_moe_layer_step=2, attn_temperature_tuning=False)),
    (
        "llama4-plain",
        "llama4_text",
        dict(
            LLAMA4,
            head_dim=16,
            num_hidden_layers=3,
            use_qk_norm=False,
            attn_temperature_tuning=False,
            num_experts_per_tok=2,
            no_rope_layers=[1, 1, 0],
            layer_types=["chunked_attention", "full_attention", "chunked_attention"],
            moe_layers=[0, 2],
            attention_bias=True,
            rope_parameters=LLAMA3,
        ),
    ),
    ("gpt-oss", "gpt_oss", OSS),
    ("gpt-oss-bounded", "gpt_oss", dict(OSS, swiglu_limit=0.4, swiglu_alpha=1.2, layer_types=TYPES[::-1][1:] * 2, num_hidden_layers=4)),
    ("granite", "granite", GRANITE),
    ("granite-biases", "granite", dict(GRANITE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, hidden_act="gelu")),
    ("granitemoe", "granitemoe", dict(GRANITE, intermediate_size=16, num_local_experts=6)),
    ("granitemoe-shared", "granitemoeshared", dict(GRANITE, intermediate_size=16, num_local_experts=6, shared_intermediate_size=20)),
    ("granite-swa", "granite_swa", dict(GRANITE, num_hidden_layers=4, sliding_window=5)),
    (
        "granitemoe-swa",
        "granitemoe_swa",
        dict(GRANITE, num_hidden_layers=4, sliding_window=5, intermediate_size=16, num_local_experts=6, shared_intermediate_size=20),
    ),
    ("hyperclovax", "hyperclovax", dict(GRANITE, head_dim=8)),
    ("hyperclovax-plain", "hyperclovax", dict(GRANITE, attention_multiplier=None, use_post_norm=False, mlp_bias=True)),
    ("minimax-m2", "minimax_m2", dict(ROTARY, head_dim=8, intermediate_size=16, num_local_experts=6, num_experts_per_tok=2)),
    ("minimax-m2-part", "minimax_m2", dict(ROTARY, head_dim=8, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4)),
    ("dots1", "dots1", dict(GLM_LIKE, norm_topk_prob=True)),
    ("dots1-window", "dots1", dict(GLM_LIKE, n_group=3, topk_group=2, sliding_window=5, max_window_layers=1, attention_bias=True)),
    ("cohere", "cohere", COHERE),
    ("cohere-normed", "cohere", dict(COHERE, use_qk_norm=True, tie_word_embeddings=False, attention_bias=True)),
    ("cohere2", "cohere2", dict(COHERE, num_hidden_layers=4, sliding_window=5)),
    ("cohere2-types", "cohere2", dict(COHERE, num_hidden_layers=3, sliding_window=5, layer_types=TYPES, tie_word_embeddings=False)),
    ("olmo", "olmo", ROTARY),
    ("olmo-clipped", "olmo", dict(ROTARY, clip_qkv=0.3, tie_word_embeddings=True)),
    ("olmoe", "olmoe", dict(ROTARY, num_experts=6, num_experts_per_tok=2, intermediate_size=16)),
    ("olmoe-clipped", "olmoe", dict(ROTARY, num_experts=6, num_experts_per_tok=2, intermediate_size=16, clip_qkv=0.5, norm_topk_prob=True)),
    ("flex-olmo", "flex_olmo", dict(ROTARY, num_experts=6, num_experts_per_tok=2, intermediate_size=16, pad_token_id=2)),
    ("exaone", "exaone", ROTARY),
    ("exaone4", "exaone4", dict(ROTARY, num_hidden_layers=4, sliding_window=5)),
    ("exaone4-types", "exaone4", dict(ROTARY, num_hidden_layers=3, sliding_window=5, layer_types=TYPES)),
    (
        "exaone-moe",
        "exaone_moe",
        dict(ROTARY, **SOFTMAX, num_hidden_layers=4, sliding_window=5, n_group=3, topk_group=2, pad_token_id=2),
    ),
    ("glm", "glm", dict(ROTARY, head_dim=8, pad_token_id=2)),
    ("glm-whole", "glm", dict(ROTARY, head_dim=8, pad_token_id=2, attention_bias=False, rope_parameters=dict(PART, partial_rotary_factor=1.0))),
    ("glm4", "glm4", dict(ROTARY, head_dim=8, pad_token_id=2)),
    ("glm4-moe-lite", "glm4_moe_lite", LITE),
    ("ernie4-5", "ernie4_5", dict(ROTARY, head_dim=8)),
    ("ernie4-5-biases", "ernie4_5", dict(ROTARY, head_dim=8, use_bias=True, tie_word_embeddings=False)),
    ("ernie4-5-moe", "ernie4_5_moe", ERNIE),
    ("ernie4-5-moe-some", "ernie4_5_moe", dict(ERNIE, num_hidden_layers=4, moe_layer_interval=2, moe_layer_start_index=0, tie_word_embeddings=False)),
    ("internlm3", "internlm3", dict(ROTARY, head_dim=8)),
    ("iquestcoder", "iquestcoder", dict(ROTARY, head_dim=8)),
    ("seed-oss", "seed_oss", dict(ROTARY, head_dim=8, attention_dropout=0.0, residual_dropout=0.0, attention_out_bias=True, mlp_bias=True)),
    ("helium", "helium", dict(ROTARY, head_dim=6)),
    ("ministral", "ministral", dict(ROTARY, head_dim=6, num_hidden_layers=3, sliding_window=5, layer_types=TYPES)),
    ("ministral-window", "ministral", dict(ROTARY, head_dim=8, sliding_window=5)),
    ("cwm", "cwm", FOURTH),
    ("jais2", "jais2", ROTARY),
    ("nemotron", "nemotron", dict(ROTARY, head_dim=8)),
    ("nemotron-biases", "nemotron", dict(ROTARY, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    ("gemma1", "gemma", dict(ROTARY, head_dim=8)),
    ("gemma1-gelu", "gemma", dict(ROTARY, head_dim=8, hidden_act="gelu", attention_bias=True)),
    ("vaultgemma", "vaultgemma", GEMMA),
    ("starcoder2", "starcoder2", ROTARY),
    ("starcoder2-window", "starcoder2", dict(ROTARY, sliding_window=5, use_bias=False, tie_word_embeddings=False)),
    ("phi1", "phi", dict(ROTARY, hidden_size=32)),
    ("phi1-normed", "phi", dict(ROTARY, hidden_size=32, qk_layernorm=True, hidden_act="relu")),
    ("stablelm", "stablelm", dict(ROTARY, hidden_size=32)),
    ("stablelm-parallel", "stablelm", dict(ROTARY, hidden_size=64, use_parallel_residual=True, use_qkv_bias=True)),
    ("apertus", "apertus", dict(ROTARY, pad_token_id=2)),
    ("apertus-relu", "apertus", dict(ROTARY, pad_token_id=2, hidden_act="quick_gelu", attention_bias=True, rope_parameters=dict(rope_theta=500.0))),
    ("afmoe", "afmoe", dict(ROTARY, **SOFTMAX, num_hidden_layers=4, head_dim=8, sliding_window=5, num_shared_experts=1, route_scale=1.5)),
    (
        "afmoe-scaled",
        "afmoe",
        dict(ROTARY, **SOFTMAX, num_hidden_layers=3, head_dim=8, sliding_window=5, layer_types=TYPES, mup_enabled=True, num_dense_layers=2),
    ),
    ("solar-open", "solar_open", {key: value for key, value in GLM.items() if key not in ("intermediate_size", "use_qk_norm")}),
    ("hy-v3", "hy_v3", dict(ROTARY, **SOFTMAX, head_dim=8)),
    ("hunyuan-dense", "hunyuan_v1_dense", dict(ROTARY, head_dim=8)),
    ("hunyuan-moe", "hunyuan_v1_moe", dict(ROTARY, head_dim=8, num_experts=6, moe_topk=2, intermediate_size=16)),
    ("youtu", "youtu", MLA),
    ("persimmon", "persimmon", {key: value for key, value in dict(ROTARY, hidden_size=32).items() if key != "num_key_value_heads"}),
    ("gptj", "gptj", dict(GPTJ, rotary_dim=4)),
    ("gptj-whole", "gptj", dict(GPTJ, rotary_dim=8, n_inner=36, tie_word_embeddings=True, activation_function="relu")),
    ("gpt-bigcode", "gpt_bigcode", GPT2),
    ("gpt-neo", "gpt_neo", dict(OPT_LIKE, num_layers=4, num_heads=4, window_size=5, attention_types=[[["global", "local"], 2]])),
    ("gpt-neo-types", "gpt_neo", dict(OPT_LIKE, num_layers=3, num_heads=4, window_size=5, attention_types=[[["global", "local", "local"], 1]], intermediate_size=36)),
    ("opt", "opt", dict(OPT, ffn_dim=40, dropout=0.0)),
    ("opt-plain", "opt", dict(OPT, ffn_dim=40, dropout=0.0, enable_bias=False, layer_norm_elementwise_affine=False, tie_word_embeddings=False)),
    ("biogpt", "biogpt", dict(OPT, intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)),
    ("biogpt-eps", "biogpt", dict(OPT, intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-3)),
    ("apertus1p5", "apertus1p5_text", dict(ROTARY, pad_token_id=2)),
    ("aria", "aria_text", dict(ROTARY, head_dim=8, moe_num_experts=6, moe_topk=2, moe_num_shared_experts=1, intermediate_size=16)),
    ("minicpm3", "minicpm3", MLA),
    ("minicpm3-factors", "minicpm3", dict(MLA, q_lora_rank=None, scale_emb=4.0, scale_depth=None, dim_model_base=8, tie_word_embeddings=False)),
    ("flint", "flint", dict(SECOND, num_hidden_layers=4, head_dim=8, sliding_window=5)),
    ("kolibri1", "kolibri1", {key: value for key, value in dict(SECOND, num_hidden_layers=5, head_dim=8, sliding_window=5).items() if key != "intermediate_size"}),
    ("mellum", "mellum", dict(ROTARY, **SOFTMAX, num_hidden_layers=3, head_dim=8, sliding_window=5, layer_types=TYPES)),
    ("nanochat", "nanochat", dict(ROTARY, pad_token_id=2)),
    ("bitnet", "bitnet", ROTARY),
    ("ministral3", "ministral3", dict(ROTARY, head_dim=8, pad_token_id=2, rope_parameters=yarn(llama_4_scaling_beta=0.3))),
    ("ministral3-window", "ministral3", dict(ROTARY, head_dim=8, pad_token_id=2, sliding_window=5, rope_parameters=GROWING)),
    ("falcon", "falcon", FALCON),
    ("falcon-new", "falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=2, bias=True, tie_word_embeddings=False)),
    ("falcon-new-one", "falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
    ("falcon-many", "falcon", dict(FALCON, multi_query=False, bias=True, ffn_hidden_size=36)),
    ("bert", "bert", CAUSAL),
    ("bert-encoder", "bert", dict(BERT, hidden_act="relu", type_vocab_size=3)),
    ("bert-generation", "bert-generation", CAUSAL),
    ("roberta", "roberta", ROBERTA),
    ("roberta-encoder", "roberta", dict(ROBERTA, is_decoder=False, hidden_act="relu")),
    ("camembert", "camembert", ROBERTA),
    ("data2vec", "data2vec-text", ROBERTA),
    ("xlm-roberta", "xlm-roberta", ROBERTA),
    ("electra", "electra", dict(CAUSAL, embedding_size=12)),
    ("electra-whole", "electra", dict(CAUSAL, embedding_size=24, tie_word_embeddings=False)),
    ("ernie", "ernie", dict(CAUSAL, use_task_id=True)),
    ("megatron-bert", "megatron-bert", CAUSAL),
    ("rembert", "rembert", dict(CAUSAL, input_embedding_size=12, output_embedding_size=20)),
    ("rembert-alike", "rembert", dict(CAUSAL, input_embedding_size=12, output_embedding_size=12, is_decoder=False)),
    ("roberta-prelayernorm", "roberta-prelayernorm", ROBERTA),
    ("xlm-roberta-xl", "xlm-roberta-xl", ROBERTA),
    ("bart", "bart", DECODER),
    ("bart-scaled", "bart", dict(DECODER, scale_embedding=True, tie_word_embeddings=False, activation_function="relu")),
    ("plbart", "plbart", DECODER),
    ("mbart", "mbart", DECODER),
    ("mvp", "mvp", DECODER),
    ("blenderbot", "blenderbot", DECODER),
    ("blenderbot-small", "blenderbot-small", DECODER),
    ("bigbird-pegasus", "bigbird_pegasus", DECODER),
    ("bigbird-pegasus-biases", "bigbird_pegasus", dict(DECODER, use_bias=True, scale_embedding=False)),
    ("trocr", "trocr", dict(TROCR, cross_attention_hidden_size=20, is_decoder=True)),
    ("trocr-plain", "trocr", dict(TROCR, layernorm_embedding=False, scale_embedding=True)),
    ("whisper", "whisper", dict({key: value for key, value in DECODER.items() if key != "max_position_embeddings"}, max_target_positions=32)),
    ("roformer", "roformer", CAUSAL),
    ("roformer-small", "roformer", dict(BERT, embedding_size=12)),
    ("pegasus", "pegasus", DECODER),
    ("marian", "marian", dict(DECODER, scale_embedding=True)),
    ("bloom", "bloom", dict(BLOOM, n_head=4)),
    ("bloom-heads", "bloom", dict(BLOOM, n_head=12)),
    ("mpt", "mpt", dict(MPT, n_heads=12)),
    ("mpt-clipped", "mpt", dict(MPT, n_heads=4, attn_config=dict(clip_qkv=0.5, softmax_scale=0.3), tie_word_embeddings=False)),
    ("gpt-neox-japanese", "gpt_neox_japanese", dict(NEOX_JAPANESE, num_hidden_layers=3)),
    ("gpt-neox-japanese-part", "gpt_neox_japanese", dict(NEOX_JAPANESE, rope_parameters=PART, tie_word_embeddings=False)),
    ("modernbert-decoder", "modernbert-decoder", MODERN),
    (
        "modernbert-decoder-biases",
        "modernbert-decoder",
        dict(MODERN, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, decoder_bias=False, layer_types=TYPES + ["full_attention"], tie_word_embeddings=False),
    ),
    ("laguna", "laguna", LAGUNA),
    ("laguna-elements", "laguna", dict(LAGUNA, gating="per-element", attention_bias=True, moe_routed_scaling_factor=1.5, tie_word_embeddings=True)),
    ("dbrx", "dbrx", DBRX),
    ("dbrx-plain", "dbrx", dict(DBRX, ffn_config=dict(DBRX["ffn_config"], moe_top_k=3, moe_normalize_expert_weights=None))),
    ("sarvam-mla", "sarvam_mla", dict(THIRD, q_lora_rank=None)),
    ("sarvam-moe", "sarvam_moe", SARVAM),
    ("axk1", "axk1", LITE),
    ("axk1-sparse", "axk1", dict(LITE, num_hidden_layers=1, mlp_layer_types=["sparse"])),
    ("cohere2-moe", "cohere2_moe", COHERE_MOE),
    (
        "cohere2-moe-sigmoid",
        "cohere2_moe",
        dict(
            COHERE_MOE,
            expert_selection_fn="sigmoid",
            num_shared_experts=2,
            rms_norm_eps=1e-5,
            layer_types=["full_attention", *TYPES],
            mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
            prefix_dense_intermediate_size=20,
        ),
    ),
    ("cohere2-moe-sum", "cohere2_moe", dict(COHERE_MOE, num_shared_experts=1, shared_expert_combination_strategy="sum")),
    ("codegen", "codegen", dict(GPTJ, n_head=8, rotary_dim=4)),
    ("openai-gpt", "openai-gpt", dict(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=4, **NO_DROPOUT)),
    ("ctrl", "ctrl", dict(vocab_size=61, n_positions=32, n_embd=24, dff=40, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0)),
    ("xglm", "xglm", WAVED),
    ("xglm-plain", "xglm", dict(WAVED, scale_embedding=False, tie_word_embeddings=False)),
    ("emu3", "emu3_text_model", dict(ROTARY, attention_dropout=0.0, pad_token_id=2)),
    ("mimo", "mimo_v2_flash", MIMO),
    (
        "mimo-plain",
        "mimo_v2_flash",
        dict(
            MIMO,
            v_head_dim=8,
            attention_value_scale=None,
            attention_bias=True,
            n_group=3,
            topk_group=2,
            mlp_layer_types=["sparse", "dense", "sparse"],
            rope_parameters=dict(full_attention=PART, sliding_attention=dict(PART, partial_rotary_factor=0.75)),
        ),
    ),
    ("xlm", "xlm", XLM),
    ("xlm-causal", "xlm", dict(XLM, causal=True, gelu_activation=False, tie_word_embeddings=False)),
    ("moshi", "moshi", MOSHI),
    ("moshi-pad", "moshi", dict(MOSHI, num_key_value_heads=2, pad_token_id=61, hidden_act="gelu")),
    ("cohere-compass", "cohere_compass_text", dict(COMPASS, rope_parameters=dict(full_attention=None, sliding_attention=TURN))),
    ("cohere-compass-all", "cohere_compass_text", dict(COMPASS, logit_scale=None, rope_parameters=dict(full_attention=dict(TURN, rope_theta=100.0), sliding_attention=TURN))),
    ("cohere-compass-none", "cohere_compass_text", dict(COMPASS, layer_types=["full_attention"] * 3, tie_word_embeddings=False, rope_parameters=dict(full_attention=None))),
    ("qwen3-next", "qwen3_next", NEXT),
    ("qwen3-next-dense", "qwen3_next", dict(NEXT, mlp_only_layers=[0, 1], tie_word_embeddings=True)),
    ("qwen3-5", "qwen3_5_text", dict(ROTARY, **DELTA, head_dim=8, layer_types=["linear_attention", "full_attention"])),
    ("qwen3-5-moe", "qwen3_5_moe_text", dict(SECOND, **DELTA, head_dim=8, layer_types=["full_attention", "linear_attention"])),
    ("kimi-linear", "kimi_linear", KIMI_LINEAR),
    ("kimi-linear-low", "kimi_linear", dict(KIMI_LINEAR, q_lora_rank=12, layer_types=["full_attention", "linear_attention"], mlp_layer_types=["sparse", "dense"])),
    ("olmo-hybrid", "olmo_hybrid", OLMO_HYBRID),
    ("olmo-hybrid-turned", "olmo_hybrid", dict(OLMO_HYBRID, rope_parameters=dict(rope_type="default", rope_theta=500.0), linear_allow_neg_eigval=False)),
    ("lfm2", "lfm2", LFM2),
    ("lfm2-biases", "lfm2", dict(LFM2, conv_bias=True, block_auto_adjust_ff_dim=False, tie_word_embeddings=False)),
    ("lfm2-moe", "lfm2_moe", dict({key: value for key, value in LFM2.items() if key != "block_multiple_of"}, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1, routed_scaling_factor=1.5)),
    ("big-bird", "big_bird", CAUSAL),
    ("big-bird-encoder", "big_bird", dict(BERT, attention_type="original_full", use_bias=False, rescale_embeddings=True)),
    ("lfm3", "lfm3", LFM3),
    ("lfm3-plain", "lfm3", dict(LFM3, use_sandwich_norm=False, use_attention_gate=False, conv_bias=True, attention_bias=True, tie_word_embeddings=False)),
    ("lara-mini", "lara_mini", LARA),
    ("lara-mini-plain", "lara_mini", dict(LARA, layer_types=["full_attention", "linear_attention"], norm_topk_prob=False, attention_bias=True, tie_word_embeddings=False)),
    ("ling", "bailing_hybrid", LING),
    ("ling-low", "bailing_hybrid", dict(LING, q_lora_rank=12, kda_safe_gate=False, layer_types=["full_attention", "linear_attention"], mlp_layer_types=["sparse", "dense"])),
    ("beam", "beam", BEAM),
    ("beam-turned", "beam", dict(BEAM, attention_bias=True, norm_topk_prob=False, rope_parameters=dict(full_attention=LOCAL["sliding_attention"], sliding_attention=None))),
    ("minimax", "minimax", MINIMAX),
    (
        "minimax-factors",
        "minimax",
        dict(
            MINIMAX,
            **BALANCED,
            layer_types=["linear_attention", "linear_attention", "full_attention"],
            sliding_window=5,
            full_attn_alpha_factor=1.3,
            full_attn_beta_factor=0.7,
            linear_attn_alpha_factor=1.2,
            linear_attn_beta_factor=0.8,
            mlp_alpha_factor=1.1,
            mlp_beta_factor=0.9,
        ),
    ),
    ("minimax-m3", "minimax_m3_vl_text", MINIMAX_M3),
    ("minimax-m3-bounded", "minimax_m3_vl_text", dict(MINIMAX_M3, swiglu_limit=0.3, mlp_layer_types=["sparse", "sparse"], rope_parameters=PART, tie_word_embeddings=True)),
    ("recurrent-gemma", "recurrent_gemma", GRIFFIN),
    ("recurrent-gemma-wide", "recurrent_gemma", dict(GRIFFIN, lru_width=32, attention_bias=True, block_types=["attention", "recurrent"], tie_word_embeddings=False)),
    ("diffllama", "diffllama", dict(DIFFERENCES, head_dim=8)),
    ("diffllama-biases", "diffllama", dict(DIFFERENCES, head_dim=6, num_attention_heads=16, attention_bias=True, tie_word_embeddings=True)),
    ("falcon-h1", "falcon_h1", FALCON_H1),
    (
        "falcon-h1-factors",
        "falcon_h1",
        dict(
            FALCON_H1,
            mamba_rms_norm=True,
            mamba_proj_bias=True,
            mlp_bias=True,
            projectors_bias=True,
            embedding_multiplier=2.0,
            lm_head_multiplier=0.5,
            attention_in_multiplier=0.9,
            attention_out_multiplier=0.8,
            key_multiplier=0.7,
            mlp_multipliers=[0.6, 1.3],
            ssm_in_multiplier=1.2,
            ssm_out_multiplier=1.1,
            ssm_multipliers=[0.7, 0.8, 0.9, 1.1, 1.2],
        ),
    ),
    ("falcon-h1-gated", "falcon_h1", dict(FALCON_H1, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=1)),
    ("mamba", "mamba", MAMBA1),
    ("mamba-biases", "mamba", dict(MAMBA1, use_bias=True, use_conv_bias=False, time_step_rank=5, tie_word_embeddings=False)),
    ("falcon-mamba", "falcon_mamba", MAMBA1),
    ("jamba", "jamba", JAMBA),
    ("jamba-biases", "jamba", dict(JAMBA, mamba_proj_bias=True, mamba_conv_bias=False, num_experts=1)),
    ("mamba2", "mamba2", MAMBA2),
    ("mamba2-biases", "mamba2", dict(MAMBA2, n_groups=1, use_bias=True, use_conv_bias=False, time_step_limit=[0.2, 0.9], tie_word_embeddings=True)),
    ("bamba", "bamba", dict(BAMBA, num_hidden_layers=3, attn_layer_indices=[1], mlp_bias=True)),
    ("bamba-biases", "bamba", dict(BAMBA, mamba_n_groups=1, attn_layer_indices=[1], mamba_proj_bias=True, mamba_conv_bias=False, attention_bias=True)),
    ("granite-hybrid", "granitemoehybrid", GRANITE_HYBRID),
    ("granite-hybrid-dense", "granitemoehybrid", dict(GRANITE_HYBRID, num_local_experts=0, position_embedding_type="rope")),
    ("nemotron-h", "nemotron_h", NEMOTRON_H),
    ("nemotron-h-dense", "nemotron_h", dict(NEMOTRON_H, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"], use_bias=True, mlp_bias=True)),
    ("gpt2", "gpt2", GPT2),
    ("gpt2-exact", "gpt2", dict(GPT2, activation_function="gelu", n_inner=36, tie_word_embeddings=False)),
]

# Lengths of the documents in each row, of cases whose rows have several: some rows have none that is longer than 8 tokens.
DOCUMENTS = {
    name: [[16], [8, 8], [5, 3, 8], [9, 7], [1, 15], [4, 4, 4, 4], [7, 1, 8], [6, 10]]
    for name in ("llama-documents", "phi3-documents", "llama4-documents")
}

# Keys of a class's file that are taken out before it is read here: the defaults of both sides must then be the same.
DEFAULTED = {
    "llama": ["rope_parameters", "rms_norm_eps", "hidden_act", "head_dim", "tie_word_embeddings", "attention_bias"],
    "mistral": ["sliding_window", "head_dim", "rope_parameters"],
    "mixtral": ["rope_parameters", "rms_norm_eps", "num_experts_per_tok"],
    "qwen3": ["use_sliding_window", "layer_types", "tie_word_embeddings"],
    "qwen3-moe": ["head_dim", "norm_topk_prob"],
    "deepseek-v3": ["norm_topk_prob", "routed_scaling_factor", "n_shared_experts", "num_key_value_heads", "head_dim"],
    "deepseek-v2-groups": ["routed_scaling_factor", "norm_topk_prob", "rope_parameters"],
    "gemma2": ["hidden_activation", "attn_logit_softcapping", "final_logit_softcapping", "layer_types", "rope_parameters", "tie_word_embeddings"],
    "gemma3": ["hidden_activation", "layer_types", "rope_parameters", "tie_word_embeddings", "rms_norm_eps"],
    "olmo2": ["rms_norm_eps", "rope_parameters", "hidden_act"],
    "olmo3": ["rms_norm_eps", "rope_parameters", "layer_types", "hidden_act"],
    "arcee": ["rms_norm_eps", "rope_parameters", "hidden_act"],
    "gpt-neox": ["rope_parameters", "use_parallel_residual", "attention_bias", "hidden_act", "layer_norm_eps"],
    "glm4-moe": ["rope_parameters", "n_shared_experts", "n_group", "topk_group", "norm_topk_prob", "first_k_dense_replace", "rms_norm_eps"],
    "smollm3": ["no_rope_layers", "layer_types", "use_sliding_window"],
    "llama4": ["no_rope_layers", "layer_types", "moe_layers", "use_qk_norm", "attn_scale", "attn_temperature_tuning", "rms_norm_eps"],
    "gpt-oss": ["rope_parameters", "layer_types", "swiglu_limit", "swiglu_alpha", "attention_bias", "rms_norm_eps"],
    "gpt2": ["n_inner", "activation_function", "layer_norm_epsilon", "tie_word_embeddings"],
}

# Options of this class are also written as older versions of transformers do.
OLDER = ["llama-llama3", "deepseek-v3-yarn", "mistral-whole"]

# Layouts: one device, and nine that between them have every technique.
DENSE = [
    "",
    "dp=2,tp=2,sp=true,zero=1",
    "pp=2,tp=2",
    "cp=2,zero=2,dp=2",
    "dp=2,pp=2,zero=3,recompute=full",
    "cp=4,cp_kind=ring",
    "dp=2,cp=2,cp_kind=ring,zero=3,shard=2",
    "cp=2,tp=2,cp_kind=ulysses,recompute=selective",
    "tp=4,pp=2,schedule=zb-v,mbs=1",
    "dp=2,pp=2,schedule=zb-h1,zero=1,offload=all",
]
EXPERTS = [
    "",
    "dp=2,tp=2,sp=true,zero=1",
    "pp=2,dp=2,ep=2",
    "cp=2,ep=2",
    "dp=2,tp=2,ep=2,etp=2,zero=3,recompute=selective:moe",
    "cp=4,ep=2,cp_kind=ring,zero=1",
    "dp=2,cp=2,ep=2,cp_kind=ring,zero=3,shard=2",
    "cp=2,tp=2,ep=2,cp_kind=ulysses",
    "tp=4,ep=2,sp=true,recompute=full",
    "dp=2,pp=2,ep=2,schedule=zb-h1,offload=all",
]

# Of models that carry a state along sequences: few groups share it.
STATES = [layout.replace("tp=4", "tp=2") for layout in DENSE] + ["tp=2,sp=true,zero=3", "dp=2,tp=2,zero=2,recompute=selective"]
STATES_EXPERTS = [layout.replace("tp=4,ep=2", "tp=2,ep=2") for layout in EXPERTS] + ["dp=2,ep=2,zero=2,recompute=selective"]
# The same for attention to chosen keys, which no ring and no heads of other ranks have.
CHOSEN = [
    "",
    "dp=2,tp=2,sp=true,zero=1",
    "pp=2,dp=2,ep=2",
    "cp=2,ep=2",
    "dp=2,tp=2,ep=2,etp=2,zero=3,recompute=selective:moe",
    "cp=4,ep=2,zero=1",
    "dp=2,cp=2,ep=2,zero=3,shard=2",
    "cp=2,tp=2,ep=2",
    "tp=4,ep=2,sp=true,recompute=full",
    "dp=2,pp=2,ep=2,schedule=zb-h1,offload=all",
]

# Families that share all parts with others: their cases are compared with `--whole` alone.
ALIKE = {
    "afmoe", "apertus", "apertus1p5_text", "aria_text", "axk1", "bert-generation", "bigbird_pegasus", "biogpt", "bitnet", "blenderbot",
    "blenderbot-small", "camembert", "codegen", "cohere", "cohere2", "ctrl", "cwm", "data2vec-text", "dots1", "electra",
    "emu3_text_model", "ernie", "ernie4_5", "ernie4_5_moe", "exaone", "exaone4", "exaone_moe", "falcon", "flex_olmo", "flint", "gemma",
    "glm", "glm4", "glm4_moe_lite", "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "gptj", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe",
    "hy_v3", "hyperclovax", "internlm3", "iquestcoder", "jais2", "kolibri1", "marian", "mbart", "megatron-bert", "mellum", "minicpm3",
    "minimax_m2", "ministral", "ministral3", "mpt", "mvp", "nanochat", "nemotron", "olmo", "olmoe", "opt", "pegasus", "persimmon", "phi",
    "plbart", "rembert", "roberta", "roberta-prelayernorm", "roformer", "sarvam_mla", "sarvam_moe", "seed_oss", "solar_open", "stablelm",
    "starcoder2", "trocr", "vaultgemma", "xglm", "xlm-roberta", "xlm-roberta-xl", "youtu",
}


def layouts(names):
    """The layouts of a model with weights of these names."""
    has_experts, has_conv, has_decays, chooses = (any(part in name for name in names) for part in (".experts.", "conv", "slope_rate", ".indexer."))
    has_state = has_conv or has_decays
    if chooses:
        return CHOSEN
    return [[DENSE, STATES], [EXPERTS, STATES_EXPERTS]][has_experts][has_state]


def chosen(whole):
    """The cases of a run."""
    return [case for case in CASES if whole or case[1] not in ALIKE]
