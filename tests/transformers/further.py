"""Layers that predict further tokens: the class `MtpModel` of transformers next to the model whose embedding and head it shares."""

import torch
from transformers.modeling_layers import MtpModel

# The factor of the mean of their losses: the default of the key `mtp_loss_scaling_factor`.
FACTOR = 0.3


def attach(model, depth):
    """Adds `depth` such layers to a model."""
    model.further = MtpModel(model, depth)


def inputs(ids, labels, depth):
    """Tokens and labels of each layer, by the names of inputs: those of the next places."""
    named = {}
    for ahead in range(1, depth + 1):
        for name, of, none in [("tok", ids, 0), ("lab", labels, -1)]:
            named[f"{name}{ahead}"] = torch.nn.functional.pad(of[:, ahead:], (0, ahead), value=none).contiguous()
    return named


def loss(model, hidden, named):
    """The factor times the mean loss of the layers, summed over tokens."""
    further, total = model.further, 0.0
    places = named.get("pos", torch.arange(hidden.shape[1]).unsqueeze(0))
    for number in range(further.num_mtp_layers):
        hidden = further.forward_layer(number, hidden, places, None, input_ids=named[f"tok{number + 1}"])
        logits = further._project_to_logits(hidden).float()
        labels = named[f"lab{number + 1}"].flatten().long()
        total = total + torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels, ignore_index=-1, reduction="sum")
    return FACTOR / further.num_mtp_layers * total


def name(key, layers):
    """The name in files of a tensor of a model with such layers, of `layers` layers itself."""
    if not key.startswith("further.layers."):
        return key
    number, rest = key.removeprefix("further.layers.").split(".", 1)
    rest = rest.removeprefix("mtp_block.")
    if rest.startswith("post_norm."):
        rest = "shared_head.norm." + rest.removeprefix("post_norm.")
    return f"model.layers.{layers + int(number)}.{rest}"
