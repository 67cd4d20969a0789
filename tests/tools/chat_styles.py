"""Chat templates of published styles, written from their documented formats.

Each marks with `{% generation %}` what the assistant says and its end of turn, for `transformers`;
`plain` takes the tags out again. They stand on one line, since Jinja also eats line ends at tags.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.tools.tokenizer_families import train_family


def _of_roles(
    *, answer: str, question: str, after: str = "", start: str = "", end: str = ""
) -> str:
    by_role = f"{{% if m.role == 'assistant' %}}{answer}{{% else %}}{question}{{% endif %}}"
    return f"{start}{{% for m in messages %}}{by_role}{after}{{% endfor %}}{end}"


def _said(text: str) -> str:
    return "{% generation %}{{ " + text + " }}{% endgeneration %}"


class Style(NamedTuple):
    """A template, and a tokenizer of a family of `tokenizer_families` with its special tokens."""

    family: str
    specials: Sequence[str]
    eos: str
    template: str

    @property
    def bos(self) -> str:
        return self.specials[0]

    @property
    def plain(self) -> str:
        """The template without `{% generation %}`."""
        return re.sub("{% (end)?generation %}", "", self.template)


_TOOL_CALLS = (
    "{% for call in m.tool_calls %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}"
    "{% endfor %}"
)
STYLES = {
    "ChatML": Style(
        "Qwen 2",
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
        _of_roles(
            start="{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}"
            "{% endfor %}<|im_end|>\n{% endif %}",
            answer="<|im_start|>assistant{{ '\n' }}{% generation %}"
            "{% if m.content %}{{ m.content }}{% endif %}{% if m.tool_calls %}"
            + _TOOL_CALLS
            + "{% endif %}<|im_end|>{% endgeneration %}",
            question="<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>",
            after="{{ '\n' }}",
            end="{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}",
        ),
    ),
    "Llama 2": Style(
        "Llama 2",
        ("<s>", "</s>"),
        "</s>",
        _of_roles(
            answer="{{ ' ' }}" + _said("(m.content | trim) + ' ' + eos_token"),
            question="{% if m.role == 'system' %}{{ bos_token + '[INST] <<SYS>>\n' + m.content + "
            "'\n<</SYS>>\n\n' }}{% else %}{% if loop.index0 == 0 or messages[loop.index0 - 1].role "
            "!= 'system' %}{{ bos_token + '[INST] ' }}{% endif %}{{ (m.content | trim) + "
            "' [/INST]' }}{% endif %}",
        ),
    ),
    "Llama 3": Style(
        "Llama 3",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
        _of_roles(
            start="{{ bos_token }}",
            answer="{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
            + _said("(m.content | trim) + '<|eot_id|>'"),
            question="{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + "
            "(m.content | trim) + '<|eot_id|>' }}",
            end="{% if add_generation_prompt %}"
            "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        ),
    ),
    "Mistral": Style(
        "Mistral",
        ("<s>", "</s>", "[INST]", "[/INST]"),
        "</s>",
        _of_roles(
            start="{{ bos_token }}{% if messages | map(attribute='role') | select('equalto', "
            "'developer') | list %}{{ raise_exception('no developer here') }}{% endif %}",
            answer="{{ ' ' }}" + _said("(m.content | trim) + eos_token"),
            question="{{ '[INST] ' + m.content + '[/INST]' }}",
        ),
    ),
    "Zephyr": Style(
        "Mistral",
        ("<s>", "</s>"),
        "</s>",
        _of_roles(
            answer="{{ '<|assistant|>\n' }}" + _said("m.content + eos_token") + "{{ '\n' }}",
            question="{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}",
            end="{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        ),
    ),
    "Gemma": Style(
        "Gemma",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        _of_roles(
            start="{{ bos_token }}",
            answer="{{ '<start_of_turn>model\n' }}"
            + _said("(m.content | trim) + '<end_of_turn>'")
            + "{{ '\n' }}",
            question="{{ '<start_of_turn>user\n' + (m.content | trim) + '<end_of_turn>\n' }}",
            end="{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        ),
    ),
    "Phi-3": Style(
        "Llama 2",
        ("<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        "<|endoftext|>",
        _of_roles(
            answer="{{ '<|assistant|>\n' }}" + _said("m.content + '<|end|>'") + "{{ '\n' }}",
            question="{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}",
            end="{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}"
            "{% endif %}",
        ),
    ),
    "DeepSeek": Style(
        "DeepSeek V3",
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        "<｜end▁of▁sentence｜>",
        _of_roles(
            start="{{ bos_token }}",
            answer="<｜Assistant｜>" + _said("m.content + eos_token"),
            question="{% if m.role == 'user' %}<｜User｜>{% endif %}{{ m.content }}",
            end="{% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
        ),
    ),
    "Alpaca": Style(
        "GPT-2",
        ("<|endoftext|>",),
        "<|endoftext|>",
        _of_roles(
            answer="{{ '### Response:\n' }}" + _said("m.content + eos_token") + "{{ '\n\n' }}",
            question="{{ '### Instruction:\n' + m.content + '\n\n' }}",
        ),
    ),
}


def styled_tokenizer(style: Style, texts: Sequence[str]) -> Tokenizer:
    """A tokenizer of the style's family that has its special tokens."""
    tokenizer = train_family(style.family, texts, 600)
    special = [AddedToken(token, normalized=False, special=True) for token in style.specials]
    tokenizer.add_special_tokens(special)
    return tokenizer


def oracle(
    style: Style, tokenizer: Tokenizer, messages: list[dict[str, Any]], tools: Any = None
) -> tuple[list[int], list[int]]:
    """Ids and mask, as `transformers` has them by `{% generation %}`."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=style.bos, eos_token=style.eos
    )
    made: Any = fast.apply_chat_template(
        messages,
        tools=tools,
        chat_template=style.template,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return made["input_ids"], made["assistant_masks"]
