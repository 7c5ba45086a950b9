"""A class of transformers next to Meshwright: its count of parameters, and logits, loss and gradients of a small model.

`meshwright models --check` has this program within it and runs it on a folder with `full.json`, the configuration that is counted, and
`small.json`, that of the small model. It writes `reply.json`, and of the small model a folder `hub` and `tensors.safetensors`. The
comparisons in `tests/transformers` make and name their models by the same functions.

    python3 reference.py FOLDER
"""

import copy
import json
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, Emu3ForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SEQUENCES, SEQ = 2, 16
# Changes of weights that are larger than rounding, relative, how often they are drawn, the most by which they may change a tensor, relative
# to its norm, the least norm of one, relative to the largest, that counts, and the models tried.
NOISE, DRAWS, STEADY, FLOOR, ATTEMPTS = 1e-6, 2, 5e-5, 5e-3, 8
# The weights of each further model, relative to those of the one before.
SMALLER = 0.75

# Elements of a product from which on random weights become smaller.
WIDE = 64
# Families whose classes have gains relative to 1.
RELATIVE = ("gemma", "vaultgemma", "recurrent_gemma", "nemotron", "minimax_m3", "qwen3_next", "qwen3_5")
# The end of the name of a table of positions, which some classes do not train.
TABLE = "embed_positions.weight"
# Families whose classes give a token of padding no position of its own, or hide as many last tokens as there are of it.
WITHOUT_PADDING = ("roberta", "camembert", "data2vec-text", "xlm-roberta", "roberta-prelayernorm", "xlm-roberta-xl", "xlm")
# Parts of names whose files have others, by family.
RENAMED = {
    "nemotron_h": {"model.": "backbone."},
    "exaone": {
        "model.layers.": "transformer.h.",
        "model.norm.": "transformer.ln_f.",
        "model.embed_tokens.": "transformer.wte.",
        "self_attn.o_proj.": "attn.attention.out_proj.",
        "self_attn.": "attn.attention.",
        "input_layernorm.": "ln_1.",
        "post_attention_layernorm.": "ln_2.",
        "mlp.gate_proj.": "mlp.c_fc_0.",
        "mlp.up_proj.": "mlp.c_fc_1.",
        "mlp.down_proj.": "mlp.c_proj.",
    }
}


def is_gain(key):
    # Names of modules that have more than norms.
    for module in ("norm_attn_norm.", "roberta_prelayernorm.", "layernorm.mlp."):
        key = key.replace(module, "")
    return key.endswith("weight") and any(part in key.lower() for part in ("norm", "ln_", ".ln."))


def configuration(file):
    """The configuration of a file's keys, by the class of its `model_type`."""
    return CONFIG_MAPPING[file["model_type"]].from_dict(file)


def made_of(config, **how):
    """A model of a configuration. One class is that of the text model alone of another one."""
    if config.model_type == "emu3_text_model":
        return Emu3ForCausalLM(config)
    return AutoModelForCausalLM.from_config(config, **how)


def count(config):
    """Parameters of a class, with the biases of experts and factors of layers that are no parameters there."""
    text = config.get_text_config()
    with torch.device("meta"):
        if text is not config:
            # The whole class says whether its head is tied.
            whole = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type])(config)
            text.tie_word_embeddings = not any(key.endswith("lm_head.weight") for key, _ in whole.named_parameters())
        model = made_of(text)
    biases = [buffer for name, buffer in model.named_buffers() if name.endswith(("e_score_correction_bias", "layer_scalar"))]
    return sum(tensor.numel() for tensor in [*model.parameters(), *biases])


def eager(config):
    """A model that computes experts one by one: the other ways want sizes that are multiples of four."""
    return made_of(config, experts_implementation="eager")


def randomise(model, scale=1.0):
    """Gives a model random weights, large enough that every part of a layer counts; those of products are `scale` times as large."""
    family = model.config.model_type
    for key, parameter in model.named_parameters():
        # Tables of waves are what they are.
        if key.endswith(TABLE) and not parameter.requires_grad:
            continue
        # Gains about 1, the rest about 0. Some classes add the 1 themselves.
        is_relative = family.startswith(RELATIVE) and not family.startswith("gemma4")
        mean = 1.0 if not is_relative and is_gain(key) else 0.0
        # Products of more elements than this have smaller ones, so that scores and logits stay of the size of 1.
        std = 0.2 * scale * min(1.0, (WIDE / parameter.shape[-1]) ** 0.5) if parameter.dim() > 1 else 0.2
        torch.nn.init.normal_(parameter, mean=mean, std=std)
    with torch.no_grad():
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.2)
            if key.endswith("layer_scalar"):
                buffer.copy_(1.0 + torch.randn_like(buffer) * 0.2)
    return model.eval()


def shaken(model, noise=NOISE):
    """A copy of a model, each of whose weights is off by about `noise`, relative."""
    near = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.mul_(1 + noise * torch.randn_like(parameter))
    return near


def are_near(tensors, others):
    least = FLOOR * max((tensor.norm() for tensor in tensors.values()), default=0.0)
    return all((tensor - others[key]).norm() <= STEADY * max(tensor.norm(), least) for key, tensor in tensors.items())


def tokens_and_labels(config, generator, sequences, seq):
    """Random tokens, of which none is padding where that matters, and the next ones as labels; samples differ in how many count."""
    ids = torch.randint(0, config.vocab_size, (sequences, seq + 1), generator=generator)
    if config.model_type in WITHOUT_PADDING:
        ids[ids == config.pad_token_id] += 1
    tokens, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    for row in range(sequences):
        labels[row, : row % 4] = -1
    return tokens, labels


def named(model):
    """Parameters and buffers under the names of files."""
    all_named = dict(model.named_parameters(remove_duplicate=False))
    ties = getattr(model, "_tied_weights_keys", None) or {}
    # Files have the embedding under its own name.
    tied = {key: of for key, of in ties.items() if all_named.get(key) is all_named.get(of)}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    renamed = RENAMED.get(model.config.model_type, {})
    return [(renaming(tied.get(key, key), renamed), tensor) for key, tensor in tensors if tensor.is_floating_point()]


def renaming(key, renamed):
    for old, new in renamed.items():
        key = key.replace(old, new)
    return key


def gradients_of(model, named_tensors):
    """The gradient of each parameter that is trained, and of a table that others train; 0 where there is none."""
    trained = [(key, p) for key, p in named_tensors if p.requires_grad or key.endswith(TABLE)]
    return {key: torch.zeros_like(p) if p.grad is None else p.grad.clone() for key, p in trained}


def step(model, tokens, labels):
    """Logits, loss, and gradients by name."""
    logits = model(input_ids=tokens, use_cache=False).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
    model.zero_grad()
    loss.backward()
    gradients = {f"gradient/{key}": tensor for key, tensor in gradients_of(model, named(model)).items()}
    return loss.item(), dict(gradients, logits=logits.detach())


def example(config, folder):
    """Saves a random model that does not hang on rounding, and its tensors: where two experts have nearly the same score, the last place
    of a sum decides which one gets a token. Gives the loss."""
    tokens, labels = tokens_and_labels(config, torch.Generator().manual_seed(1), SEQUENCES, SEQ)
    for attempt in range(ATTEMPTS):
        torch.manual_seed(attempt)
        # Scores of some families have no factor, and saturate.
        model = randomise(eager(config), SMALLER**attempt)
        loss, tensors = step(model, tokens, labels)
        if all(are_near(tensors, step(shaken(model), tokens, labels)[1]) for _ in range(DRAWS)):
            model.save_pretrained(os.path.join(folder, "hub"))
            # The class writes what it has by default, too, such as a number of layers that it does not compute.
            shutil.copy(os.path.join(folder, "small.json"), os.path.join(folder, "hub", "config.json"))
            tensors.update(tok=tokens.int(), lab=labels.int())
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, os.path.join(folder, "tensors.safetensors"))
            return loss
    raise RuntimeError(f"of {ATTEMPTS} random models, none has gradients that do not hang on rounding")


def outcome(work, *given):
    """The value of a function, or why it has none."""
    try:
        return dict(value=work(*given), why=None)
    except Exception as why:
        return dict(value=None, why=f"{type(why).__name__}: " + (str(why).splitlines() or [""])[0])


def read(folder, name):
    with open(os.path.join(folder, name)) as file:
        return json.load(file)


def main(folder):
    transformers.logging.set_verbosity_error()
    reply = dict(
        versions=f"torch {torch.__version__}, transformers {transformers.__version__}",
        parameters=outcome(lambda: count(configuration(read(folder, "full.json")))),
        batch=[SEQUENCES, SEQ],
        loss=outcome(lambda: example(configuration(read(folder, "small.json")), folder)),
    )
    with open(os.path.join(folder, "reply.json"), "w") as file:
        json.dump(reply, file)


if __name__ == "__main__":
    main(sys.argv[1])
