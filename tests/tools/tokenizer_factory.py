"""Small tokenizers for tests, made by `tokenizers` on the spot."""

import copy
import json
from typing import Any

import pyarrow as pa
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXT = [
    "The quick brown fox, who's 12 years old, doesn't jump over the lazy dogs' beds.",
    "They'll say we've 3.14 reasons; I'd say there're ½ of them.\n\n  Indented   text\there.",
    "Blåbærsyltetøy på Ærø. Привет, мир! 中文字符 and 漢字かな交じり文, हिन्दी में, 한국어 🙂🙂",
] * 3
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def trained_tokenizer() -> Tokenizer:
    """Byte-level BPE as RoBERTa's, with about 500 ids: `<s>` 0, `</s>` 2, `<mask>` 4."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=list(ROBERTA_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def config_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Its tokenizer.json, to be changed."""
    return json.loads(tokenizer.to_str())


def changed(config: dict[str, Any], *path: str | int, value: Any) -> dict[str, Any]:
    """A copy with a different value: `changed(config, "model", "dropout", value=0.1)`."""
    config = copy.deepcopy(config)
    part: Any = config
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return config


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    """A step that replaces text."""
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: str) -> dict[str, Any]:
    """A step that cuts text apart by a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def template(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> dict[str, Any]:
    """A post-processor that puts special tokens around a text, and after a second one."""

    def pieces(tokens: list[tuple[str, int]], type_id: int = 0) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": token, "type_id": type_id}} for token, _ in tokens]

    single = [*pieces(before), {"Sequence": {"id": "A", "type_id": 0}}, *pieces(after)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, *pieces(after, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [i], "tokens": [token]} for token, i in before + after
        },
    }


def added(i: int, content: str, **flags: bool) -> dict[str, Any]:
    """An added token."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": i, "content": content, **plain, "special": True, **flags}


def data_of(config: dict[str, Any]) -> bytes:
    """Bytes of a tokenizer.json."""
    return json.dumps(config).encode()


def strings(*texts: str) -> pa.LargeStringArray:
    """Documents."""
    return pa.array(texts, pa.large_string())
