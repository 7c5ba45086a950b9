"""Models and batches that are compared, the optimizer that all sides use, and the work of a step."""

import json
import os
from dataclasses import dataclass

FOLDER = os.path.dirname(os.path.abspath(__file__))

# The defaults of `meshwright train`, with a constant learning rate. Matrices decay; gains and biases do not.
OPTIMIZER = dict(lr=1e-4, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)


@dataclass(frozen=True)
class Case:
    """A model with the batch of a step. `model` is what `meshwright train` opens."""

    name: str
    model: str
    seq: int
    batch: int
    steps: int

    @property
    def config(self):
        """Path of the `config.json` that the peers read."""
        return os.path.join(FOLDER, "models", self.name, "config.json")

    @property
    def tokens(self):
        """Tokens of a step."""
        return self.seq * self.batch

    def flops(self):
        """FLOPs of a step: 6 for each token and weight of a product, the head included, and causal attention."""
        with open(self.config) as file:
            weights, layers, width = sizes(json.load(file))
        return self.tokens * (6 * weights + layers * 7 * self.seq * width)


def of_file(name, **options):
    """A case whose model is the file that the peers read."""
    case = Case(name, "", **options)
    return Case(name, case.config, **options)


def sizes(config):
    """Weights of all products, number of layers, and width of all query heads together."""
    if config["model_type"] == "gpt2":
        h, layers = config["n_embd"], config["n_layer"]
        return layers * 12 * h * h + h * config["vocab_size"], layers, h
    h, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    keys = h // heads * config["num_key_value_heads"]
    layer = 2 * h * h + 2 * h * keys + 3 * h * config["intermediate_size"]
    return layers * layer + h * config["vocab_size"], layers, h


CASES = [
    Case("tiny-llama", "tiny-llama", seq=128, batch=16, steps=10),
    of_file("llama-110m", seq=512, batch=4, steps=3),
    of_file("gpt2-124m", seq=512, batch=4, steps=3),
]
