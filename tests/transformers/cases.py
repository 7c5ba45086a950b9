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
SOFTMAX = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)
# A factor at which the loss of uneven routing counts.
BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.5)
SECOND = dict(ROTARY, **SOFTMAX, shared_expert_intermediate_size=20)
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
WINDOWS = dict(ROTARY, num_hidden_layers=3, sliding_window=5)
GEMMA = dict(WINDOWS, head_dim=8, query_pre_attn_scalar=12)
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
