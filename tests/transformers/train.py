"""Trains models of the real classes: losses, gradients, updates, and the tokens that made them."""

import copy
import os
import sys

import torch
from transformers import CONFIG_MAPPING

import further
import rust

sys.path.insert(0, os.path.join(rust.ROOT, "src", "pytorch"))
import reference
from reference import are_near, is_gain, shaken

SEQUENCES, SEQ, STEPS, LR = 8, 16, 20, 3e-3
# Sequences of a micro-batch.
MICRO = 2
# Weights are compared after so many steps: later, rounding in another order shows.
COMPARED = 3
# How often changes of weights are drawn, the most by which they may change a loss, and the models tried.
DRAWS, STEADY, ATTEMPTS = 4, 2e-5, 8
# A change of weights that shows rounding in bf16, relative: half of a last place, by which each sum differs that is rounded elsewhere.
NOISE_BF16 = 2.0**-9
# A larger eps than in practice: else a gradient that is 0 but for rounding moves its parameter by a whole step.
ADAMW = dict(name="adamw", beta1=0.9, beta2=0.95, eps=1e-5, weight_decay=0.1, clip=1.0)


def model_of(family, options, seed):
    """A model with random weights."""
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[family](**copy.deepcopy(options))
    model = reference.eager(config)
    if "num_mtp_layers" in options:
        further.attach(model, options["num_mtp_layers"])
    return reference.randomise(model)


def far(model):
    """Logits of routers, and of the gate of a shared expert, lie below -88, where the exponential of f32 ends."""
    with torch.no_grad():
        model.model.embed_tokens.weight.abs_().mul_(8.0)
        for layer in model.model.layers:
            layer.post_attention_layernorm.weight.fill_(1.0)
            for part in ("gate", "shared_expert_gate"):
                gate = getattr(layer.mlp, part, None)
                if gate is not None and (part == "shared_expert_gate" or not hasattr(layer.mlp, "shared_expert_gate")):
                    gate.weight.mul_(0.1).sub_(5.5)


def batches(model, steps, documents):
    """Inputs of each step by the names of a model's, of whole rows or of documents in them, each from position 0 on."""
    generator = torch.Generator().manual_seed(1)
    depth = model.further.num_mtp_layers if hasattr(model, "further") else 0
    for _ in range(steps):
        inputs, labels = reference.tokens_and_labels(model.config, generator, SEQUENCES, SEQ)
        named = dict(tok=inputs, lab=labels, **further.inputs(inputs, labels, depth))
        if documents:
            named["pos"] = torch.tensor([[place for length in row for place in range(length)] for row in documents])
            named["seg"] = torch.tensor([[number for number, length in enumerate(row) for _ in range(length)] for row in documents])
        yield named


def rows(model):
    """The rows that go through the model together: under LongRoPE the positions of all decide on the frequencies of each."""
    ropes = getattr(model.config, "rope_parameters", None) or {}
    by_length = any(rope.get("rope_type") == "longrope" for rope in [ropes, *ropes.values()] if isinstance(rope, dict))
    return [slice(row, row + 1) for row in range(SEQUENCES)] if by_length else [slice(None)]


def masks(config, pos, seg):
    """What is added to scores, by the type of a layer."""
    behind = pos.unsqueeze(-1) - pos.unsqueeze(-2)
    sees = (seg.unsqueeze(-1) == seg.unsqueeze(-2)) & (behind >= 0)
    seen = dict(full_attention=sees, sliding_attention=sees & (behind < config.sliding_window))
    return {kind: torch.where(of, 0.0, torch.finfo(torch.float32).min).unsqueeze(1) for kind, of in seen.items()}


def losses_of(model, named):
    """The loss, and the same with that of layers that predict further tokens."""
    count = (named["lab"] >= 0).sum()
    own, whole = 0.0, 0.0
    for part in rows(model):
        of = {name: numbers[part] for name, numbers in named.items()}
        # The classes make the masks of documents by their positions, but for one.
        given = dict(input_ids=of["tok"], position_ids=of.get("pos"), use_cache=False)
        if "pos" in of and model.config.model_type == "gpt_oss":
            given["attention_mask"] = masks(model.config, of["pos"], of["seg"])
        logits = model(**given).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), of["lab"].flatten().long(), ignore_index=-1, reduction="sum")
        own, whole = own + loss, whole + loss
        if hasattr(model, "further"):
            whole = whole + further.loss(model, model.base_model(**given).last_hidden_state, of)
    return own / count, whole / count + balance(model, named)


def balance(model, named):
    """The loss of uneven routing, the mean over micro-batches; the reported loss is without it."""
    if not getattr(model.config, "output_router_logits", False):
        return 0.0
    parts = named["tok"].split(MICRO)
    losses = [model(input_ids=part, use_cache=False).aux_loss for part in parts]
    return model.config.router_aux_loss_coef * sum(losses) / len(parts)


def in_weights_format(model, precision):
    """Puts tables that meet the stream, or states, into the format of the weights, as the method `to` of a model does."""
    if model.config.model_type == "openai-gpt":
        for block in model.transformer.h:
            block.attn.bias = block.attn.bias.to(precision)
    if model.config.model_type == "xglm":
        table = model.model.embed_positions
        table.weights = table.weights.to(precision)
    if model.config.model_type == "minimax":
        decays = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
        for attention in (layer.self_attn for layer in model.model.layers if hasattr(layer.self_attn, "slope_rate")):
            for name in decays:
                setattr(attention, name, getattr(attention, name).to(precision))


def trained(model, precision=torch.float32, steps=STEPS, compared=COMPARED, documents=None):
    """Losses and norms of all steps, gradients of the first, weights after the compared ones, and the tokens.

    Below f32, the model has rounded weights, and the optimizer updates f32 copies of them.
    """
    copies = {p: p.detach().clone().requires_grad_() for p in model.parameters()}
    for parameter in model.parameters():
        parameter.data = parameter.data.to(precision)
    in_weights_format(model, precision)
    # Biases of experts have two dims, as have gains of each head, and rates of decay, which Mamba's own training exempts (Gu and Dao 2023).
    decays = {p: p.dim() > 1 and not key.endswith(("bias", "A_log")) and not is_gain(key) for key, p in model.named_parameters()}
    vectors, matrices = [[copies[p] for p, decay in decays.items() if decay == of] for of in (False, True)]
    groups = [dict(params=matrices, weight_decay=ADAMW["weight_decay"]), dict(params=vectors, weight_decay=0.0)]
    betas = (ADAMW["beta1"], ADAMW["beta2"])
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=betas, eps=ADAMW["eps"])
    losses, norms, first, after, tokens = [], [], {}, {}, {}
    for step, batch in enumerate(batches(model, steps + 1, documents)):
        tokens.update({f"{name}.{step}": numbers.int() for name, numbers in batch.items()})
        if step == steps:
            # Those with which exported weights are compared.
            break
        loss, whole = losses_of(model, batch)
        model.zero_grad()
        whole.backward()
        for p, copy_of in copies.items():
            copy_of.grad = None if p.grad is None else p.grad.float()
        if step == 0:
            first = reference.gradients_of(model, named(model))
        norms.append(torch.nn.utils.clip_grad_norm_(copies.values(), ADAMW["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
        with torch.no_grad():
            for p, copy_of in copies.items():
                p.copy_(copy_of)
        if step + 1 == compared:
            after = snapshot(model)
    return losses, norms, first, after, tokens


def steady(made, draws=DRAWS, **how):
    """The first of random models whose losses and tensors do not hang on rounding, and what it trains to in f32; none if none is.

    Where two experts have nearly the same score, the last place of a sum decides which one gets a token. `made` makes a model of the
    number of an attempt.
    """
    for attempt in range(ATTEMPTS):
        model = made(attempt)
        results = trained(copy.deepcopy(model), **how)
        if all(is_near(results, trained(shaken(model), **how)) for _ in range(draws)):
            return model, results
    return None


def is_near(results, others):
    """True if losses and, where all steps are compared, tensors of two runs are alike."""
    (losses, _, *tensors, _), (other_losses, _, *other_tensors, _) = results, others
    if not all(abs(loss - other) <= STEADY * loss for loss, other in zip(losses, other_losses)):
        return False
    return len(losses) > COMPARED or all(are_near(of, other) for of, other in zip(tensors, other_tensors))


def snapshot(model):
    return {key: tensor.detach().clone() for key, tensor in named(model)}


def named(model):
    """Parameters and buffers under the names of files, those of layers that predict further tokens, too."""
    layers = getattr(model.config, "num_hidden_layers", 0)
    return [(further.name(key, layers), tensor) for key, tensor in reference.named(model)]
