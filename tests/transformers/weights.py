"""Names and shapes of parameters here, from those of transformers. The same mapping serves weights and gradients."""

import re


def renamed(config, tensors, are_gradients=False):
    """Tensors under the names of transformers, as they are called and shaped here."""
    if config.model_type.startswith("gemma") and not are_gradients:
        # Gains are relative to 1 there.
        tensors = {key: tensor + 1.0 if "norm" in key else tensor for key, tensor in tensors.items()}
    if config.model_type == "gpt2":
        mapped = gpt2(config, tensors)
    elif config.model_type == "gpt_neox":
        mapped = neox(config, tensors)
    else:
        mapped = rotary(config, tensors)
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


def neox(config, tensors):
    heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    out = {
        "emb": tensors["gpt_neox.embed_in.weight"],
        "final_norm": tensors["gpt_neox.final_layer_norm.weight"],
        "final_norm_bias": tensors["gpt_neox.final_layer_norm.bias"],
        "out": tensors["lm_head.weight"].T,
    }
    plain = {
        "input_layernorm.weight": "norm1",
        "input_layernorm.bias": "norm1_bias",
        "attention.dense.bias": "bo",
        "post_attention_layernorm.weight": "norm2",
        "post_attention_layernorm.bias": "norm2_bias",
        "mlp.dense_h_to_4h.bias": "up_bias",
        "mlp.dense_4h_to_h.bias": "down_bias",
    }
    for layer in range(config.num_hidden_layers):
        source, to = f"gpt_neox.layers.{layer}.", f"layer.{layer}."
        # Queries, keys and values are next to each other, head by head.
        matrix = tensors[source + "attention.query_key_value.weight"].reshape(heads, 3, width, -1)
        bias = tensors[source + "attention.query_key_value.bias"].reshape(heads, 3, width)
        for at, name in enumerate("qkv"):
            shape = (heads, 1, width) if name == "q" else (heads, width)
            out[to + "w" + name] = matrix[:, at].permute(2, 0, 1).reshape(-1, *shape)
            out[to + "b" + name] = bias[:, at].reshape(shape)
        out[to + "wo"] = tensors[source + "attention.dense.weight"].T.reshape(heads, 1, width, -1)
        out[to + "up"] = tensors[source + "mlp.dense_h_to_4h.weight"].T
        out[to + "down"] = tensors[source + "mlp.dense_4h_to_h.weight"].T
        out.update({to + name: tensors[source + key] for key, name in plain.items()})
    return out


def names(config, tensors):
    """The name here of each layer: its kind, and its place among the layers of its kind."""
    layers = range(config.num_hidden_layers)
    sparse = [has_experts(tensors, layer) for layer in layers]
    near = [is_near(config, layer) for layer in layers]
    mixed = len(set(near)) > 1
    out, counts = [], {}
    for layer in layers:
        dense = any(sparse) and not sparse[layer]
        kind = {(False, False): "layer", (False, True): "dense", (True, False): "local", (True, True): "local_dense"}[
            mixed and near[layer], dense
        ]
        out.append(f"{kind}.{counts.setdefault(kind, 0)}")
        counts[kind] += 1
    return out


def is_near(config, layer):
    """True if a layer has a window."""
    types = getattr(config, "layer_types", None)
    if getattr(config, "sliding_window", None) is None:
        return False
    return types is None or types[layer] == "sliding_attention"


def rotary(config, tensors):
    out = {"emb": tensors["model.embed_tokens.weight"], "final_norm": tensors["model.norm.weight"]}
    if not config.tie_word_embeddings:
        out["out"] = tensors["lm_head.weight"].T
    for layer, name in enumerate(names(config, tensors)):
        own = {key.split(f"model.layers.{layer}.")[1]: t for key, t in tensors.items() if f"model.layers.{layer}." in key}
        block = {to: own[f"{key}.weight"] for key, to in norms(own).items()}
        block.update((latent if "self_attn.kv_b_proj.weight" in own else grouped)(config, own))
        block.update((experts if has_experts(tensors, layer) else gated)(config, own))
        out.update({f"{name}.{field}": tensor for field, tensor in block.items()})
    return out


def norms(own):
    """The norms of a layer, by their names there."""
    if "pre_feedforward_layernorm.weight" in own:
        return {
            "input_layernorm": "norm1",
            "post_attention_layernorm": "post_norm1",
            "pre_feedforward_layernorm": "norm2",
            "post_feedforward_layernorm": "post_norm2",
        }
    if "post_feedforward_layernorm.weight" in own:
        return {"post_attention_layernorm": "post_norm1", "post_feedforward_layernorm": "post_norm2"}
    return {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}


def has_experts(tensors, layer):
    return f"model.layers.{layer}.mlp.experts.down_proj" in tensors


def grouped(config, own):
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    out, shapes = {}, {"q": (keys, heads // keys), "k": (keys,), "v": (keys,)}
    joint = own.get("self_attn.qkv_proj.weight")
    if joint is not None:
        width = joint.shape[0] // (heads + 2 * keys)
        parts = zip("qkv", joint.split([heads * width, keys * width, keys * width]))
        own = dict(own, **{f"self_attn.{name}_proj.weight": part for name, part in parts})
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
            if config.model_type == "olmo2":
                out[name + "_norm"] = norm.reshape(*shapes[name], -1)
    if "self_attn.sinks" in own:
        out["sink"] = own["self_attn.sinks"].reshape(keys, -1)
    bias = own.get("self_attn.o_proj.bias")
    if bias is not None:
        out["bo"] = bias
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
    if "mlp.gate_up_proj.weight" in own:
        gate, up = own["mlp.gate_up_proj.weight"].chunk(2)
        return {"gate": gate.T, "up": up.T, "down": own["mlp.down_proj.weight"].T}
    out = {name: own[f"mlp.{name}_proj.weight"].T for name in ("gate", "up", "down")}
    biases = {name + "_bias": own.get(f"mlp.{name}_proj.bias") for name in ("gate", "up", "down")}
    return {**out, **{name: bias for name, bias in biases.items() if bias is not None}}


def biased_experts(own):
    """Gates and what they multiply are next to each other; matrices go from inputs to outputs."""
    both, bias = own["mlp.experts.gate_up_proj"], own["mlp.experts.gate_up_proj_bias"]
    return {
        "router": own["mlp.router.weight"].T,
        "logit_bias": own["mlp.router.bias"],
        "expert_gate": both[..., ::2],
        "expert_up": both[..., 1::2],
        "expert_down": own["mlp.experts.down_proj"],
        "expert_gate_bias": bias[..., ::2],
        "expert_up_bias": bias[..., 1::2],
        "expert_down_bias": own["mlp.experts.down_proj_bias"],
    }


def experts(_, own):
    if "mlp.experts.gate_up_proj_bias" in own:
        return biased_experts(own)
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
