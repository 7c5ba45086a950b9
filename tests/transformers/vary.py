"""Random configurations of families without rules of their own in `draw.py`: the cases of a family with other sizes, flags and numbers.

The table of keys says what is read, and what absent keys stand for.
"""

import copy
import functools
import json
import subprocess

import cases

HEADS = {"num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "attention_heads"}
KV_HEADS = {"num_key_value_heads", "num_kv_heads", "kv_n_heads"}
HIDDEN = {"hidden_size", "n_embd", "d_model"}
LAYERS = {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"}
WIDTHS = {"n_inner", "ffn_dim", "decoder_ffn_dim", "ffn_hidden_size", "dff", "embedding_size", "input_embedding_size", "output_embedding_size"}
EXPERTS = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}
CHOSEN = {"num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k"}
WINDOWS = {"sliding_window", "window_size"}
INDICES = {"moe_layers", "mlp_only_layers"}
# Flags whose other value needs more than itself, or that stand for a loss of the router.
KEPT = {"output_router_logits", "use_task_id", "new_decoder_architecture", "gating", "qkv_bias"}
# Families whose heads have a number that others divide.
FOURS = {"codegen"}
# How many query heads a key head may serve, where not any number: layers with a window may have twice the key heads.
QUERIES = {"mimo_v2_flash": (2, 4)}
# Families whose rotations are stated by type of layer.
BY_TYPE = {"cohere_compass_text", "laguna", "mellum", "mimo_v2_flash", "modernbert-decoder"}
# Families whose token of padding decides on positions.
PADDED = {"xglm"}


@functools.cache
def table(binary):
    """The rows of each family's keys."""
    printed = subprocess.run([binary, "models", "--keys", "--format", "json"], check=True, capture_output=True, text=True)
    return json.loads(printed.stdout)


def options(draw, family, rows):
    """Options of a family's class."""
    given = copy.deepcopy(draw.random.choice([options for _, of, options in cases.CASES if of == family]))
    sizes = Sizes(draw, family, rows)
    stated = {rows.get(name, {}).get("of", name): name for name in given}
    for name in {name: None for name in [*stated, *rows]}:
        row = rows.get(name, {})
        # No class has the additions.
        if row.get("done") == "read" and not row["about"].startswith("an addition"):
            value = given.get(stated.get(name), row.get("default"))
            varied = sizes.value(name, value, name in stated)
            if varied is not value:
                given[stated.get(name, name)] = varied
    return given


class Sizes:
    """The sizes of a model that others depend on."""

    def __init__(self, draw, family, rows):
        self.draw, self.family, self.rows = draw, family, rows
        kv_heads = draw.pick(1, 2, 2, 4)
        self.heads = 4 * draw.pick(1, 2) if family in FOURS else kv_heads * draw.pick(*QUERIES.get(family, (1, 2, 3)))
        self.kv_heads = self.heads if "kv_lora_rank" in rows else kv_heads
        # A quarter of a head turns in some families.
        turns_part = self.is_read("partial_rotary_factor") or self.is_read("rotary_dim")
        self.head = draw.pick(8, 16) if turns_part else draw.pick(2, 4, 6, 8, 12)
        self.layers = draw.between(1, 4)
        self.vocabulary = draw.between(20, 70)
        self.hidden = self.heads * (draw.pick(2, 4, 6) if self.is_read("head_dim") else self.head)
        self.groups = draw.pick(1, 1, 2, 3) if "n_group" in rows else 1
        self.opened = draw.between(1, self.groups)
        self.experts = self.groups * draw.between(2, 4)

    def is_read(self, name):
        return self.rows.get(name, {}).get("done") == "read"

    def value(self, name, value, is_given):
        """Another value of a key, or the same."""
        draw = self.draw
        if isinstance(value, bool):
            return value if name in KEPT or is_given or draw.chance(60) else not value
        if isinstance(value, list):
            return self.values(name, value)
        if isinstance(value, dict):
            return self.parts(name, value)
        if name == "rope_parameters":
            is_drawn = self.is_read("rope_theta") and self.family not in BY_TYPE and draw.chance(40)
            return draw.rope(self.head // 2, ["default", "default", "linear", "yarn"]) if is_drawn else value
        if "drop" in name:
            return 0.0
        if isinstance(value, float):
            return self.number(name, value)
        return self.size(name, value)

    def number(self, name, value):
        if name.endswith(("eps", "epsilon")):
            return self.draw.pick(1e-6, 1e-5, 1e-3)
        if "theta" in name or name in ("initializer_range", "partial_rotary_factor", "mtp_loss_scaling_factor", "router_aux_loss_coef"):
            return value
        return round(value * self.draw.number(0.5, 1.5), 4)

    def size(self, name, value):
        draw = self.draw
        if name == "pad_token_id":
            # Positions of some begin behind its number.
            return value if value is None or self.family in PADDED else draw.between(0, 5)
        if name in WINDOWS and value is not None:
            return draw.between(1, 16)
        fixed = {
            **dict.fromkeys(HEADS, self.heads),
            **dict.fromkeys(KV_HEADS, self.kv_heads),
            **dict.fromkeys(HIDDEN, self.hidden),
            **dict.fromkeys(LAYERS, self.layers),
            **dict.fromkeys(EXPERTS, self.experts),
            "vocab_size": self.vocabulary,
            "head_dim": self.head,
            "rotary_dim": draw.pick(2, 4, self.head),
            "n_group": self.groups,
            "topk_group": self.opened,
        }
        if name in fixed:
            return fixed[name]
        if name in CHOSEN:
            return draw.between(1, self.opened * self.experts // self.groups)
        if value is not None and (name in WIDTHS or "intermediate_size" in name):
            return 2 * draw.between(4, 24)
        if name in ("first_k_dense_replace", "num_dense_layers", "max_window_layers"):
            return draw.between(0, self.layers)
        return value

    def values(self, name, value):
        """Values by layer, or numbers of layers."""
        if name in INDICES:
            return [layer for layer in range(self.layers) if self.draw.chance(50)]
        if name == "attention_types":
            return [[[self.draw.pick("global", "local") for _ in range(self.layers)], 1]]
        if not value or isinstance(value[0], (dict, list)):
            return value
        return [self.draw.random.choice(value) for _ in range(self.layers)]

    def parts(self, name, value):
        """The parts of a key: those of rotations stay, those of attention and experts vary."""
        if name not in ("attn_config", "ffn_config"):
            return value
        return {key: self.value(key, part, True) for key, part in value.items()}
