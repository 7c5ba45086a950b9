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
SECOND = dict(ROTARY, **SOFTMAX, shared_expert_intermediate_size=20)
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
    ("llama-yarn-factor", "llama", dict(ROTARY, rope_parameters=yarn(attention_factor=0.8, beta_slow=2.0))),
    ("mistral", "mistral", ROTARY),
    ("mistral-whole", "mistral", dict(ROTARY, sliding_window=None, rope_parameters=dict(rope_theta=1e6))),
    ("qwen2", "qwen2", ROTARY),
    ("qwen2-tied-yarn", "qwen2", dict(ROTARY, tie_word_embeddings=True, rope_parameters=yarn(mscale=0.7, mscale_all_dim=0))),
    ("qwen3", "qwen3", dict(ROTARY, head_dim=8)),
    ("qwen3-tied", "qwen3", dict(ROTARY, head_dim=6, tie_word_embeddings=True, use_sliding_window=True, sliding_window=16)),
    ("mixtral", "mixtral", dict(ROTARY, num_local_experts=6, pad_token_id=-1)),
    ("mixtral-tied", "mixtral", dict(ROTARY, num_local_experts=4, num_experts_per_tok=3, tie_word_embeddings=True)),
    ("qwen2-moe", "qwen2_moe", SECOND),
    ("qwen2-moe-renormalised", "qwen2_moe", dict(SECOND, norm_topk_prob=True, qkv_bias=False, mlp_only_layers=[0])),
    ("qwen2-moe-far-gate", "qwen2_moe", dict(SECOND)),
    ("qwen3-moe", "qwen3_moe", dict(ROTARY, **SOFTMAX)),
    ("qwen3-moe-renormalised", "qwen3_moe", dict(ROTARY, **SOFTMAX, norm_topk_prob=True, decoder_sparse_step=2)),
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
    ("gpt2", "gpt2", GPT2),
    ("gpt2-exact", "gpt2", dict(GPT2, activation_function="gelu", n_inner=36, tie_word_embeddings=False)),
]

# Keys of a class's file that are taken out before it is read here: the defaults of both sides must then be the same.
DEFAULTED = {
    "llama": ["rope_parameters", "rms_norm_eps", "hidden_act", "head_dim", "tie_word_embeddings", "attention_bias"],
    "mistral": ["sliding_window", "head_dim", "rope_parameters"],
    "mixtral": ["rope_parameters", "rms_norm_eps", "num_experts_per_tok"],
    "qwen3": ["use_sliding_window", "layer_types", "tie_word_embeddings"],
    "qwen3-moe": ["head_dim", "norm_topk_prob"],
    "deepseek-v3": ["norm_topk_prob", "routed_scaling_factor", "n_shared_experts", "num_key_value_heads", "head_dim"],
    "deepseek-v2-groups": ["routed_scaling_factor", "norm_topk_prob", "rope_parameters"],
    "gpt2": ["n_inner", "activation_function", "layer_norm_epsilon", "tie_word_embeddings"],
}

# Options of this class are also written as older versions of transformers do.
OLDER = ["llama-llama3", "deepseek-v3-yarn", "mistral-whole"]

# Layouts: one device, and four that between them have every axis.
DENSE = ["", "dp=2,tp=2,sp=true,zero=1", "pp=2,tp=2", "cp=2,zero=2,dp=2", "dp=2,pp=2,zero=3,recompute=full"]
EXPERTS = ["", "dp=2,tp=2,sp=true,zero=1", "pp=2,dp=2,ep=2", "cp=2,ep=2", "dp=2,tp=2,ep=2,etp=2,zero=3,recompute=selective:moe"]
