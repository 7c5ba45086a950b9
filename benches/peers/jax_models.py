"""GPT-2 and Llama in JAX: functions of the parameters by name, as `weights.py` gives them."""

import jax
import jax.numpy as jnp


def loss_of(config, parameters, tokens, labels):
    """The mean loss of all labels. Products have the type of the parameters."""
    forward = gpt2 if config["model_type"] == "gpt2" else llama
    logits = forward(config, parameters, tokens).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def layer_of(parameters, number):
    """Parameters of a layer by field."""
    prefix = f"layer.{number}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def attention(qkv, heads, keys, turn=lambda x: x):
    """Causal attention over the queries, keys and values of one product."""
    b, s, width = qkv.shape
    d = width // (heads + 2 * keys)
    q, k, v = jnp.split(qkv.reshape(b, s, heads + 2 * keys, d), [heads, heads + keys], axis=2)
    return jax.nn.dot_product_attention(turn(q), turn(k), v, is_causal=True).reshape(b, s, heads * d)


def layer_norm(x, gain, bias, eps):
    """Layer norm in f32."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + eps)
    return (centred * scale * gain + bias).astype(x.dtype)


def rms_norm(x, gain, eps):
    """RMS norm in f32."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + eps)
    return (wide * scale * gain).astype(x.dtype)


def gpt2(config, parameters, tokens):
    """Logits of GPT-2."""
    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    x = parameters["wte"][tokens] + parameters["wpe"][: tokens.shape[1]]
    for number in range(config["n_layer"]):
        own = layer_of(parameters, number)
        n = layer_norm(x, own["norm1"], own["norm1_bias"], eps)
        x = x + attention(n @ own["wqkv"] + own["bqkv"], heads, heads) @ own["wo"] + own["bo"]
        n = layer_norm(x, own["norm2"], own["norm2_bias"], eps)
        x = x + jax.nn.gelu(n @ own["up"] + own["up_bias"], approximate=True) @ own["down"] + own["down_bias"]
    return layer_norm(x, parameters["final_norm"], parameters["final_bias"], eps) @ parameters["wte"].T


def llama(config, parameters, tokens):
    """Logits of a Llama."""
    heads, keys, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    d = config["hidden_size"] // heads
    angles = jnp.outer(jnp.arange(tokens.shape[1]), config["rope_theta"] ** (-jnp.arange(0, d, 2) / d))
    cos, sin = (jnp.tile(f(angles), 2)[:, None] for f in (jnp.cos, jnp.sin))

    def turn(x):
        low, high = jnp.split(x, 2, axis=-1)
        return (x * cos + jnp.concatenate([-high, low], axis=-1) * sin).astype(x.dtype)

    x = parameters["emb"][tokens]
    for number in range(config["num_hidden_layers"]):
        own = layer_of(parameters, number)
        x = x + attention(rms_norm(x, own["norm1"], eps) @ own["wqkv"], heads, keys, turn) @ own["wo"]
        n = rms_norm(x, own["norm2"], eps)
        x = x + (jax.nn.silu(n @ own["gate"]) * (n @ own["up"])) @ own["down"]
    return rms_norm(x, parameters["final_norm"], eps) @ parameters["emb"].T
