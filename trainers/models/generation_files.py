"""How a decoder's texts begin, in the files that `transformers` generates with.

An exported tokenizer.json puts the same ids before a prompt as `use_model --generate`, and none
after it. Python 3.8 syntax.
"""

import json
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from schemas.metadata import Schema
from schemas.tokenizer_json import read_tokenizer_json, token_ids

# The settings of a decoder's tokenizer: GPT-2 would add token types to its embeddings.
INPUTS = {"model_input_names": ["input_ids", "attention_mask"]}
_ADD_TOKENS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")


def text_start(schema: Schema) -> Tuple[int, ...]:
    """The ids before each text of a decoder's rows: bos, or none."""
    parameters = schema.parameters
    if schema.task == "qa":
        return (schema.special_ids["bos"],) if parameters["bos"] else ()
    return tuple(parameters.get("prefix_ids", ()))


def for_prompts(tokenizer_json: bytes, start: Sequence[int]) -> bytes:
    """A tokenizer.json that puts the ids `start` before a text, and nothing after it.

    Rows of a decoder do not have what its tokenizer adds, such as RoBERTa's `<s> text </s>`. Other
    steps of the post-processor stay.
    """
    config = read_tokenizer_json(tokenizer_json, "tokenizer.json")
    before = config.get("post_processor")
    steps = [step for step in map(_without_tokens, _steps(before)) if step]
    if start:
        steps.append(_template(config, start))
    after = {"type": "Sequence", "processors": steps} if len(steps) > 1 else next(iter(steps), None)
    if after == before:
        return tokenizer_json
    content = json.dumps({**config, "post_processor": after}, ensure_ascii=False, indent=2)
    return content.encode()


def _steps(step: Any) -> Iterator[Dict[str, Any]]:
    """A step, or those of a sequence."""
    if step and step["type"] == "Sequence":
        for part in step["processors"]:
            yield from _steps(part)
    elif step:
        yield step


def _without_tokens(step: Dict[str, Any]) -> Dict[str, Any]:
    """A step without the tokens that it adds: RobertaProcessing also trims the offsets of words."""
    if step["type"] == "RobertaProcessing":
        names = ("add_prefix_space", "trim_offsets")
        return {"type": "ByteLevel", **{name: step[name] for name in names}, "use_regex": True}
    return {} if step["type"] in _ADD_TOKENS else step


def _template(config: Dict[str, Any], start: Sequence[int]) -> Dict[str, Any]:
    """The step that puts tokens before a text, and before each of a pair."""
    token_of = {number: token for token, number in token_ids(config).items()}
    tokens = [token_of[number] for number in start]

    def pieces(text: str, kind: int) -> List[Dict[str, Any]]:
        before = [{"SpecialToken": {"id": token, "type_id": kind}} for token in tokens]
        return [*before, {"Sequence": {"id": text, "type_id": kind}}]

    return {
        "type": "TemplateProcessing",
        "single": pieces("A", 0),
        "pair": pieces("A", 0) + pieces("B", 1),
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]}
            for token, number in zip(tokens, start)
        },
    }
