"""Compares the tokens and labels of examples that `meshwright tokenize` writes with those of transformers, for drawn conversations.

The mask of a template with generation blocks is that of `return_assistant_tokens_mask`. For others it is by prefixes of the conversation, each
of which is made into tokens by itself.
"""

import json
import os
import random
import struct
import subprocess
import tempfile

from transformers import PreTrainedTokenizerFast

TOKENIZER = os.path.join(os.path.dirname(__file__), "..", "tokenize", "tokenizer.json")
SPECIAL = dict(bos_token="<|endoftext|>", eos_token={"content": "<|endoftext|>"}, pad_token=None)

CHATML = """{% for message in messages %}
<|im_start|>{{ message['role'] }}
    {%- if message.role == 'assistant' %}

{% generation %}{{ message['content'] }}<|im_end|>
{% endgeneration %}
    {% else %}

{{ message['content'] }}<|im_end|>
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""

TRIMMED = """{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] != 'assistant' -%}
        {{- '[INST] ' + message['content'] | trim + ' [/INST]\\n' }}
    {%- else %}
        {%- generation -%}
            {{- message.content.strip() -}} {{- eos_token -}}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}"""

LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + \
'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}\
{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]\\n" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]\\n" }}
        {%- endif %}
    {%- else %}
        {{- message["content"].rstrip() + eos_token}}
    {%- endif %}
{%- endfor %}"""

TOOLS = """{%- macro named(message) %}{{ message.role | upper }}{% endmacro %}
{%- set ns = namespace(count=0) %}
{%- if tools %}
    {{- '# Tools\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson + '\\n' }}
        {{- tool.function | tojson(indent=2) }}
        {%- for name, value in tool.function.parameters.items() %}{{ name ~ '=' ~ value }}{% endfor %}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.content is not string %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {{- '<' ~ named(message) ~ ns.count ~ '>\\n' }}
    {%- if '::' in message.content %}{{ message.content.split('::')[-1].lstrip('\\n') }}{% else %}{{ message.content }}{% endif %}
    {{- '</>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<ASSISTANT' ~ (ns.count + 1) ~ '>\\n' }}{% endif %}"""

TEMPLATES = dict(chatml=CHATML, trimmed=TRIMMED, llama3=LLAMA3, mistral=MISTRAL, tools=TOOLS)
WORDS = ["the", " cat", "\n", "  two", " 12,5", " é😀", "::", " <b>&'\"", "{% x %}", " don't", " {{ y }}", " end.", " "]


def conversation(draw, name):
    text = lambda: "a" + "".join(draw.choices(WORDS, k=draw.randrange(1, 9))) + "b"
    turns = [("user", "assistant")[at % 2] for at in range(2 * draw.randrange(1, 4))]
    turns = (["system"] if draw.random() < 0.4 else []) + turns
    line = dict(messages=[dict(role=role, content=text()) for role in turns])
    if name == "tools" and draw.random() < 0.7:
        parameters = dict(z=text(), a=3, deep=[1.5, True, None, {"k": text()}])
        line["tools"] = [dict(type="function", function=dict(name=text(), parameters=parameters))]
    return line


def wanted(tokenizer, line, template):
    given = dict(chat_template=template, tools=line.get("tools"))
    messages = line["messages"]
    ids = tokenizer.apply_chat_template(messages, return_dict=True, **given)["input_ids"]
    if "endgeneration" in template:
        marked = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True, **given)
        mask = marked["assistant_masks"]
    else:
        mask = [0] * len(ids)
        for at, message in enumerate(messages):
            if message["role"] == "assistant":
                begin, end = [
                    len(tokenizer.apply_chat_template(messages[:count], add_generation_prompt=asks, return_dict=True, **given)["input_ids"])
                    for count, asks in [(at, True), (at + 1, False)]
                ]
                mask[begin:end] = [1] * (end - begin)
    return ids, [token if counts else -1 for token, counts in zip(ids, mask)]


def written(prefix):
    """The documents of files of tokens, with their labels."""
    with open(prefix + ".idx", "rb") as file:
        index = file.read()
    count = struct.unpack("<Q", index[18:26])[0]
    lengths = struct.unpack(f"<{count}i", index[34 : 34 + 4 * count])
    numbers = []
    for suffix, kind in [(".bin", "H"), (".labels", "i")]:
        with open(prefix + suffix, "rb") as file:
            numbers.append([number for (number,) in struct.iter_unpack("<" + kind, file.read())])
    at = 0
    for length in lengths:
        yield numbers[0][at : at + length], numbers[1][at : at + length]
        at += length


def check(binary, count=60):
    """What is wrong."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        with open(TOKENIZER) as source, open(os.path.join(folder, "tokenizer.json"), "w") as file:
            file.write(source.read())
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
        for name, template in TEMPLATES.items():
            draw = random.Random(name)
            lines = [conversation(draw, name) for _ in range(count)]
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
                json.dump(dict(SPECIAL, chat_template=template), file)
            with open(os.path.join(folder, "lines.jsonl"), "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            prefix = os.path.join(folder, name)
            asked = [binary, "tokenize", os.path.join(folder, "lines.jsonl"), "--tokenizer", folder, "--out", prefix]
            told = subprocess.run(asked, capture_output=True, text=True)
            if told.returncode:
                wrong.append(f"chat {name}: {told.stderr.strip()}")
                continue
            for number, (line, found) in enumerate(zip(lines, written(prefix))):
                want = wanted(tokenizer, line, template)
                if (list(want[0]), want[1]) != found:
                    wrong.append(f"chat {name}: line {number + 1} differs: {line}\n{want}\n{found}")
    return wrong


if __name__ == "__main__":
    import sys

    differences = check(os.path.join(os.path.dirname(__file__), "..", "..", "target", "debug", "meshwright"))
    print("\n".join(differences[:3]) or "equal", f"{len(differences)} differences")
    sys.exit(1 if differences else 0)
