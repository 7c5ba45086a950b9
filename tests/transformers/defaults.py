"""Opens the configuration that each class writes when nothing is stated: no default of a class is a fault, or an unknown key."""

import os
import re
import subprocess
import tempfile

from transformers import CONFIG_MAPPING

import cases

# Files of models that read images, too.
COMPOSITES = ["gemma3", "llama4", "mistral3", "internvl", "llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"]
# What a class needs besides its defaults: numbers of experts that are null.
NEEDED = {
    "deepseek_v2": dict(num_experts_per_tok=6),
    "dots1": dict(n_routed_experts=64, n_shared_experts=1, num_experts_per_tok=6),
}
LEFT_OUT = re.compile(r"note: \S+: keys that are ignored: [a-z_]+ \(not of the text model\)(, [a-z_]+ \(not of the text model\))*")


def check(binary):
    """What is wrong with the files; prints how many there are."""
    wrong, families = [], list(dict.fromkeys(family for _, family, _ in cases.CASES)) + COMPOSITES
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            path = os.path.join(folder, family)
            CONFIG_MAPPING[family](**NEEDED.get(family, {})).save_pretrained(path)
            command = [binary, "estimate", path, "--gpus", "8", "--seq", "64", "--global-batch", "64"]
            run = subprocess.run(command, capture_output=True, text=True)
            said = [line for line in run.stderr.splitlines() if not (family in COMPOSITES and LEFT_OUT.fullmatch(line))]
            if run.returncode or said:
                wrong.append(f"{family}: " + "\n".join(said))
    for line in wrong:
        print(f"default: {line}")
    print(f"{len(families)} files of classes without options were opened, {len(wrong)} with a complaint")
    return wrong
