"""Random configurations of every family: each number, flag and list that the classes read, in small sizes.

Families without rules of their own here are varied by `vary.py`. A draw depends on its seed and the table of keys alone.
"""

import random

import vary

SEQ = 16
# The kinds of rotary frequencies that most classes take.
KINDS = ["default", "default", "linear", "llama3", "yarn", "yarn", "longrope"]


class Draw:
    """Random values of one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def pick(self, *values):
        return self.random.choice(values)

    def between(self, low, high):
        return self.random.randint(low, high)

    def number(self, low, high):
        return round(self.random.uniform(low, high), 3)

    def flags(self, count):
        return [self.chance(50) for _ in range(count)]

    def rope(self, pairs, kinds=KINDS, **more):
        """The rotary parameters of heads of which so many pairs turn."""
        rope = dict(rope_type=self.random.choice(kinds), rope_theta=self.pick(20.0, 500.0, 10000.0, 1e6), **more)
        context = self.pick(4, 8, 12, 16, 32)
        if rope["rope_type"] == "default":
            return rope
        if rope["rope_type"] != "longrope" or self.chance(50):
            rope["factor"] = self.number(1.0, 40.0) if self.chance(90) else 1.0
        if rope["rope_type"] == "linear":
            return rope
        rope["original_max_position_embeddings"] = context
        if rope["rope_type"] == "llama3":
            low = self.number(0.2, 2.0)
            return dict(rope, low_freq_factor=low, high_freq_factor=low + self.number(0.1, 4.0))
        if self.chance(30):
            rope["attention_factor"] = self.number(0.5, 1.6)
        if rope["rope_type"] == "longrope":
            return dict(rope, **{key: [self.number(1.0, 8.0) for _ in range(pairs)] for key in ("short_factor", "long_factor")})
        for key, low, high in [("beta_slow", 0.3, 2.0), ("beta_fast", 4.0, 40.0), ("mscale", 0.2, 1.5), ("mscale_all_dim", 0.2, 1.5)]:
            if self.chance(30):
                rope[key] = self.number(low, high)
        if self.chance(30):
            rope["truncate"] = self.chance(50)
        return rope

    def sizes(self, head_key="head_dim", free_head=True):
        """What nearly all families have."""
        kv_heads = self.pick(1, 2, 2, 4)
        heads, head = kv_heads * self.pick(1, 2, 3), self.pick(2, 4, 6, 8, 12, 16)
        options = dict(
            vocab_size=self.between(20, 70),
            # Some classes want a multiple of the number of heads, whatever these are.
            hidden_size=heads * self.pick(2, 3, 4, 6),
            intermediate_size=self.between(8, 48),
            num_hidden_layers=self.between(1, 4),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=self.pick(16, 24, 64, 128),
            rms_norm_eps=self.pick(1e-6, 1e-5, 1e-3),
            tie_word_embeddings=self.chance(40),
        )
        options["pad_token_id"] = self.between(0, options["vocab_size"] - 1) if self.chance(30) else None
        if free_head:
            options[head_key] = head
        else:
            options["hidden_size"] = heads * head
        return options, head

    def types(self, layers, other="sliding_attention"):
        return [other if flag else "full_attention" for flag in self.flags(layers)]

    def softmax(self):
        experts = self.between(2, 7)
        return experts, self.between(1, experts)

    def groups(self):
        """Groups of experts, of which some are open: options and the number of experts."""
        groups, size = self.pick(1, 1, 2, 3), self.between(2, 4)
        opened = self.between(1, groups)
        return dict(n_group=groups, topk_group=opened, num_experts_per_tok=self.between(1, opened * size)), groups * size

    def activation(self):
        return self.pick("silu", "silu", "gelu", "gelu_pytorch_tanh", "relu2")


def llama(draw):
    options, head = draw.sizes()
    options.update(attention_bias=draw.chance(40), mlp_bias=draw.chance(40), hidden_act=draw.activation())
    return dict(options, rope_parameters=draw.rope(head // 2))


def mistral(draw):
    options, head = draw.sizes()
    return dict(options, sliding_window=draw.pick(None, 1, 3, 5, 16), rope_parameters=draw.rope(head // 2))


def qwen2(draw):
    options, head = draw.sizes(free_head=False)
    return dict(options, rope_parameters=draw.rope(head // 2), **qwen_windows(draw, options))


def qwen_windows(draw, options):
    windows = dict(use_sliding_window=draw.chance(60), sliding_window=draw.between(1, 16))
    windows["max_window_layers"] = draw.between(0, options["num_hidden_layers"])
    if draw.chance(40):
        windows["layer_types"] = draw.types(options["num_hidden_layers"]) if windows["use_sliding_window"] else None
    return windows


def qwen3(draw):
    options, head = draw.sizes()
    options.update(qwen_windows(draw, options), attention_bias=draw.chance(40))
    return dict(options, rope_parameters=draw.rope(head // 2))


def mixtral(draw):
    options, head = draw.sizes()
    experts, chosen = draw.softmax()
    options.update(num_local_experts=experts, num_experts_per_tok=chosen, sliding_window=draw.pick(None, None, 3, 5))
    return dict(options, rope_parameters=draw.rope(head // 2))


def sparse(draw, options):
    """Layers with and without experts, as the MoE of Qwen have them."""
    experts, chosen = draw.softmax()
    layers = options["num_hidden_layers"]
    return dict(
        num_experts=experts,
        num_experts_per_tok=chosen,
        moe_intermediate_size=draw.between(4, 20),
        norm_topk_prob=draw.chance(50),
        decoder_sparse_step=draw.pick(1, 1, 2),
        mlp_only_layers=[layer for layer in range(layers) if draw.chance(20)],
    )


def qwen2_moe(draw):
    options, head = draw.sizes(free_head=False)
    options.update(sparse(draw, options), **qwen_windows(draw, options), qkv_bias=draw.chance(60))
    return dict(options, shared_expert_intermediate_size=draw.between(4, 20), rope_parameters=draw.rope(head // 2))


def qwen3_moe(draw):
    options, head = draw.sizes()
    windows = dict(use_sliding_window=draw.chance(50), sliding_window=draw.between(1, 16))
    options.update(sparse(draw, options), **windows, attention_bias=draw.chance(40))
    return dict(options, rope_parameters=draw.rope(head // 2))


def latent(draw):
    options, _ = draw.sizes(free_head=False)
    turned = draw.pick(2, 4, 6, 8)
    experts, count = draw.groups()
    heads = draw.pick(1, 2, 4)
    options.update(
        experts,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        hidden_size=heads * draw.pick(3, 4, 6),
        q_lora_rank=draw.pick(None, draw.between(2, 12)),
        kv_lora_rank=draw.between(2, 12),
        qk_nope_head_dim=draw.pick(2, 5, 6),
        qk_rope_head_dim=turned,
        v_head_dim=draw.pick(3, 4, 8),
        n_routed_experts=count,
        n_shared_experts=draw.pick(1, 1, 2),
        moe_intermediate_size=draw.between(4, 20),
        first_k_dense_replace=draw.between(0, options["num_hidden_layers"]),
        routed_scaling_factor=draw.number(0.5, 2.5),
    )
    return dict(options, rope_parameters=draw.rope(turned // 2))


def deepseek_v2(draw):
    options = latent(draw)
    # The class turns pairs as complex numbers, which want even strides.
    for key in ("kv_lora_rank", "qk_nope_head_dim"):
        options[key] += options[key] % 2
    limited = options["n_group"] > 1 or draw.chance(30)
    return dict(options, topk_method="group_limited_greedy" if limited else "greedy")


def deepseek_v3(draw):
    options = latent(draw)
    options.update(norm_topk_prob=draw.chance(60), rope_interleave=draw.chance(50))
    return with_further(draw, options)


def with_further(draw, options):
    """Layers that predict further tokens, in some: they are like the last one, so that this one must have experts as they do."""
    if draw.chance(30) and options["first_k_dense_replace"] < options["num_hidden_layers"]:
        options["num_mtp_layers"] = draw.pick(1, 1, 2)
    return options


def gemma(draw):
    options, head = draw.sizes()
    options.update(
        hidden_activation=draw.activation(),
        query_pre_attn_scalar=draw.pick(head, draw.between(2, 20)),
        sliding_window=draw.between(1, 16),
        attention_bias=draw.chance(30),
        final_logit_softcapping=draw.pick(None, draw.number(1.0, 30.0)),
    )
    if draw.chance(60):
        options["layer_types"] = draw.types(options["num_hidden_layers"])
    return options, head


def gemma2(draw):
    options, head = gemma(draw)
    options["attn_logit_softcapping"] = draw.pick(None, draw.number(0.5, 50.0))
    return dict(options, rope_parameters=draw.rope(head // 2))


def gemma3_text(draw):
    options, head = gemma(draw)
    types = ["full_attention", "sliding_attention"]
    if draw.chance(70):
        options["rope_parameters"] = {kind: draw.rope(head // 2) for kind in types}
    return options


def olmo2(draw):
    options, head = draw.sizes(free_head=False)
    options.update(attention_bias=draw.chance(40), hidden_act=draw.activation())
    return dict(options, rope_parameters=draw.rope(head // 2))


def olmo3(draw):
    options, head = draw.sizes(free_head=False)
    options.update(attention_bias=draw.chance(40), hidden_act=draw.activation(), sliding_window=draw.pick(1, 3, 5, 16))
    if draw.chance(70):
        options["layer_types"] = draw.types(options["num_hidden_layers"])
    if draw.chance(70):
        options["rope_parameters"] = {kind: draw.rope(head // 2) for kind in ("full_attention", "sliding_attention")}
    return options


def arcee(draw):
    options, head = draw.sizes(free_head=False)
    options.update(attention_bias=draw.chance(40), mlp_bias=draw.chance(40), hidden_act=draw.activation())
    return dict(options, rope_parameters=draw.rope(head // 2))


def phi3(draw):
    options, head = draw.sizes(free_head=False)
    part = draw.pick(1.0, 1.0, 0.5) if head % 4 == 0 else 1.0
    pairs = int(head * part) // 2
    rope = draw.rope(pairs, ["default", "longrope", "longrope"], partial_rotary_factor=part)
    options["original_max_position_embeddings"] = rope.get("original_max_position_embeddings", 16)
    return dict(options, sliding_window=draw.pick(None, 3, 16), hidden_act=draw.activation(), rope_parameters=rope)


def gpt_neox(draw):
    options, head = draw.sizes(free_head=False)
    for key in ("num_key_value_heads", "rms_norm_eps", "pad_token_id"):
        del options[key]
    parts = [part for part in (0.25, 0.5, 1.0) if head * part >= 2 and int(head * part) % 2 == 0]
    part = draw.pick(*parts)
    options.update(
        layer_norm_eps=draw.pick(1e-5, 1e-3),
        use_parallel_residual=draw.chance(50),
        hidden_act=draw.pick("gelu", "gelu_fast", "gelu_new", "silu"),
        attention_bias=draw.chance(70),
    )
    return dict(options, rope_parameters=draw.rope(int(head * part) // 2, partial_rotary_factor=part))


def glm4_moe(draw):
    options, _ = draw.sizes()
    head = options["head_dim"] = draw.pick(4, 8, 16)
    part = draw.pick(0.5, 0.5, 1.0)
    experts, count = draw.groups()
    options.update(
        experts,
        n_routed_experts=count,
        n_shared_experts=draw.pick(1, 1, 2),
        moe_intermediate_size=draw.between(4, 20),
        first_k_dense_replace=draw.between(0, options["num_hidden_layers"]),
        routed_scaling_factor=draw.number(0.5, 2.5),
        norm_topk_prob=draw.chance(60),
        use_qk_norm=draw.chance(50),
        attention_bias=draw.chance(50),
        rope_parameters=draw.rope(int(head * part) // 2, partial_rotary_factor=part),
    )
    return with_further(draw, options)


def gpt_oss(draw):
    options, head = draw.sizes()
    experts, chosen = draw.softmax()
    options.update(
        num_local_experts=experts,
        num_experts_per_tok=chosen,
        sliding_window=draw.between(1, 16),
        swiglu_alpha=draw.number(0.5, 2.0),
        swiglu_limit=draw.number(0.3, 7.0),
        attention_bias=draw.chance(60),
    )
    if draw.chance(60):
        options["layer_types"] = draw.types(options["num_hidden_layers"])
    return dict(options, rope_parameters=draw.rope(head // 2))


def smollm3(draw):
    options, head = draw.sizes(free_head=False)
    layers = options["num_hidden_layers"]
    options.update(
        attention_bias=draw.chance(40),
        mlp_bias=draw.chance(40),
        hidden_act=draw.activation(),
        no_rope_layer_interval=draw.between(1, 4),
        use_sliding_window=draw.chance(50),
        sliding_window=draw.pick(None, draw.between(1, 16)),
    )
    if draw.chance(50):
        options["no_rope_layers"] = [int(flag) for flag in draw.flags(layers)]
    if options["use_sliding_window"] and options["sliding_window"] and draw.chance(50):
        options["layer_types"] = draw.types(layers)
    return dict(options, rope_parameters=draw.rope(head // 2))


def llama4_text(draw):
    options, head = draw.sizes()
    layers = options["num_hidden_layers"]
    experts, chosen = draw.softmax()
    options.update(
        intermediate_size_mlp=draw.between(8, 48),
        num_local_experts=experts,
        num_experts_per_tok=chosen,
        interleave_moe_layer_step=draw.pick(1, 2),
        use_qk_norm=draw.chance(60),
        attn_temperature_tuning=draw.chance(60),
        floor_scale=draw.between(1, 8),
        attn_scale=draw.number(0.05, 0.5),
        attention_bias=draw.chance(30),
        attention_chunk_size=draw.between(2, 16),
        no_rope_layer_interval=draw.between(1, 4),
        hidden_act=draw.pick("silu", "silu", "gelu"),
    )
    if draw.chance(40):
        options["no_rope_layers"] = [int(flag) for flag in draw.flags(layers)]
    if draw.chance(40):
        options["layer_types"] = draw.types(layers, "chunked_attention")
    if draw.chance(40):
        options["moe_layers"] = [layer for layer in range(layers) if draw.chance(50)]
    return dict(options, rope_parameters=draw.rope(head // 2))


def gpt2(draw):
    heads = draw.pick(1, 2, 4)
    return dict(
        vocab_size=draw.between(20, 70),
        n_positions=draw.pick(SEQ, 32),
        n_embd=heads * draw.pick(3, 4, 8),
        n_layer=draw.between(1, 3),
        n_head=heads,
        n_inner=draw.pick(None, draw.between(8, 48)),
        activation_function=draw.pick("gelu", "gelu_new", "gelu_pytorch_tanh"),
        layer_norm_epsilon=draw.pick(1e-5, 1e-3),
        tie_word_embeddings=draw.chance(50),
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
    )


FAMILIES = {
    function.__name__: function
    for function in [
        llama,
        mistral,
        qwen2,
        qwen3,
        mixtral,
        qwen2_moe,
        qwen3_moe,
        deepseek_v2,
        deepseek_v3,
        gemma2,
        gemma3_text,
        olmo2,
        olmo3,
        arcee,
        phi3,
        gpt_neox,
        glm4_moe,
        gpt_oss,
        smollm3,
        llama4_text,
        gpt2,
    ]
}


def families(binary):
    """The names of all families that are drawn: all that open."""
    return [name for name in vary.table(binary) if name != "rope"]


def configuration(binary, seed):
    """The family of a seed, the options of its class, and documents: the lengths of each row's, or none for whole rows."""
    draw, names = Draw(seed), families(binary)
    family = names[seed % len(names)]
    if family not in FAMILIES:
        return family, vary.options(draw, family, vary.table(binary)[family]), None
    options = FAMILIES[family](draw)
    # The class grows queries by their place in the row, not in the document.
    documents = draw.chance(50) and not options.get("attn_temperature_tuning")
    return family, options, [lengths(draw) for _ in range(8)] if documents else None


def lengths(draw):
    """Lengths of documents that fill a row."""
    rest, found = SEQ, []
    while rest:
        found.append(draw.between(1, min(rest, draw.pick(6, 12, SEQ))))
        rest -= found[-1]
    return found
