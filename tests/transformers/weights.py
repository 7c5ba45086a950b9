"""Names and shapes of parameters here, from those of transformers. The same mapping serves weights and gradients."""

import re


def renamed(config, tensors):
    """Tensors under the names of transformers, as they are called and shaped here."""
    mapped = gpt2(config, tensors) if config.model_type == "gpt2" else rotary(config, tensors)
    return {name: tensor.contiguous() for name, tensor in mapped.items()}


def gpt2(config, tensors):
    heads, width = config.n_head, config.n_embd // config.n_head
    out = {
        "wte": tensors["transformer.wte.weight"],
        "wpe": tensors["transformer.wpe.weight"],
        "final_norm": tensors["transformer.ln_f.weight"],
        "final_bias": tensors["transformer.ln_f.bias"],
    }
    if not config.tie_word_embeddings:
        out["out"] = tensors["lm_head.weight"].T
    for layer in range(config.n_layer):
        source, to = f"transformer.h.{layer}.", f"layer.{layer}."
        matrix, bias = tensors[source + "attn.c_attn.weight"], tensors[source + "attn.c_attn.bias"]
        for name, part, vector in zip("qkv", matrix.chunk(3, dim=1), bias.chunk(3)):
            shape = (heads, 1, width) if name == "q" else (heads, width)
            out[to + "w" + name] = part.reshape(config.n_embd, *shape)
            out[to + "b" + name] = vector.reshape(shape)
        out[to + "wo"] = tensors[source + "attn.c_proj.weight"].reshape(heads, 1, width, config.n_embd)
        plain = {
            "ln_1.weight": "norm1",
            "ln_1.bias": "norm1_bias",
            "attn.c_proj.bias": "bo",
            "ln_2.weight": "norm2",
            "ln_2.bias": "norm2_bias",
            "mlp.c_fc.weight": "up",
            "mlp.c_fc.bias": "up_bias",
            "mlp.c_proj.weight": "down",
            "mlp.c_proj.bias": "down_bias",
        }
        out.update({to + name: tensors[source + key] for key, name in plain.items()})
    return out


def rotary(config, tensors):
    out = {"emb": tensors["model.embed_tokens.weight"], "final_norm": tensors["model.norm.weight"]}
    if not config.tie_word_embeddings:
        out["out"] = tensors["lm_head.weight"].T
    mlps = [layer for layer in range(config.num_hidden_layers) if not has_experts(tensors, layer)]
    sparse = len(mlps) < config.num_hidden_layers
    for layer in range(config.num_hidden_layers):
        own = {key.split(f"model.layers.{layer}.")[1]: t for key, t in tensors.items() if f"model.layers.{layer}." in key}
        name = f"layer.{layer - len(mlps)}" if sparse else f"layer.{layer}"
        name = f"dense.{layer}" if sparse and layer in mlps else name
        block = {"norm1": own["input_layernorm.weight"], "norm2": own["post_attention_layernorm.weight"]}
        block.update((latent if "self_attn.kv_b_proj.weight" in own else grouped)(config, own))
        block.update((experts if has_experts(tensors, layer) else gated)(config, own))
        out.update({f"{name}.{field}": tensor for field, tensor in block.items()})
    return out


def has_experts(tensors, layer):
    return f"model.layers.{layer}.mlp.experts.down_proj" in tensors


def grouped(config, own):
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    out, shapes = {}, {"q": (keys, heads // keys), "k": (keys,), "v": (keys,)}
    for name, shape in shapes.items():
        weight = own[f"self_attn.{name}_proj.weight"]
        out["w" + name] = weight.T.reshape(config.hidden_size, *shape, -1)
        bias = own.get(f"self_attn.{name}_proj.bias")
        if bias is not None:
            out["b" + name] = bias.reshape(*shape, -1)
    out["wo"] = own["self_attn.o_proj.weight"].T.reshape(keys, heads // keys, -1, config.hidden_size)
    for name in "qk":
        norm = own.get(f"self_attn.{name}_norm.weight")
        if norm is not None:
            out[name + "_norm"] = norm
    return out


def latent(config, own):
    heads, plain, turned = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim
    interleaved = getattr(config, "rope_interleave", True)

    def pairs(tensor):
        """Here the partners of a turned pair lie half of the part apart."""
        if not interleaved:
            return tensor
        order = [*range(0, turned, 2), *range(1, turned, 2)]
        return tensor[..., order]

    out = {}
    if config.q_lora_rank is None:
        query = own["self_attn.q_proj.weight"]
    else:
        out["wdq"] = own["self_attn.q_a_proj.weight"].T
        out["q_norm"] = own["self_attn.q_a_layernorm.weight"]
        query = own["self_attn.q_b_proj.weight"]
    query = query.T.reshape(query.shape[1], heads, 1, plain + turned)
    out["wqn"], out["wqr"] = query[..., :plain], pairs(query[..., plain:])
    down = own["self_attn.kv_a_proj_with_mqa.weight"].T
    out["wdkv"], out["wkr"] = down[:, : config.kv_lora_rank], pairs(down[:, config.kv_lora_rank :])
    out["kv_norm"] = own["self_attn.kv_a_layernorm.weight"]
    up = own["self_attn.kv_b_proj.weight"].T.reshape(config.kv_lora_rank, heads, -1)
    out["wkn"], out["wv"] = up[..., :plain], up[..., plain:]
    out["wo"] = own["self_attn.o_proj.weight"].T.reshape(heads, 1, config.v_head_dim, config.hidden_size)
    return out


def gated(_, own):
    return {name: own[f"mlp.{name}_proj.weight"].T for name in ("gate", "up", "down")}


def experts(_, own):
    both, down = own["mlp.experts.gate_up_proj"], own["mlp.experts.down_proj"]
    gate, up = both.chunk(2, dim=1)
    out = {
        "router": own["mlp.gate.weight"].T,
        "expert_gate": gate.transpose(1, 2),
        "expert_up": up.transpose(1, 2),
        "expert_down": down.transpose(1, 2),
    }
    if "mlp.gate.e_score_correction_bias" in own:
        out["router_bias"] = own["mlp.gate.e_score_correction_bias"]
    if "mlp.shared_expert_gate.weight" in own:
        out["shared_share"] = own["mlp.shared_expert_gate.weight"][0]
    for key, tensor in own.items():
        shared = re.fullmatch(r"mlp\.shared_experts?\.(gate|up|down)_proj\.weight", key)
        if shared:
            out["shared_" + shared[1]] = tensor.T
    return out
