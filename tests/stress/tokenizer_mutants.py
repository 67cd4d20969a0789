"""Tokenizer files of every family with small changes, for `tests.stress.fuzz_tokenizers`."""

import base64
import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import processors

from tests.tools.shard_factory import tokenizer_json
from tests.tools.tokenizer_factory import (
    TEXT,
    added,
    config_of,
    replace,
    split,
    template,
    trained_tokenizer,
)
from tests.tools.tokenizer_families import FAMILIES, train_family

Path = tuple[str | int, ...]
_EMPTY_MAP = base64.b64encode((1024).to_bytes(4, "little") + bytes(1024) + b"a\0").decode()
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


def shapes() -> dict[str, dict[str, Any]]:
    """A small tokenizer.json of each family and of three more kinds, every field written out."""
    padded = train_family("GPT-2", TEXT, 400)
    padded.post_processor = processors.ByteLevel()
    padded.enable_truncation(8)
    padded.enable_padding(length=16, pad_id=1, pad_token="<pad>")
    return {
        **{name: config_of(train_family(name, TEXT, 400)) for name in FAMILIES},
        "padded": config_of(padded),
        "RoBERTa": config_of(trained_tokenizer()),
        "words": json.loads(tokenizer_json(50)),
    }


STEPS: dict[str, list[dict[str, Any]]] = {
    "normalizer": [
        *({"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase")),
        *({"type": name} for name in ("StripAccents", "ByteLevel")),
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Prepend", "prepend": ""},
        {"type": "Precompiled", "precompiled_charsmap": _EMPTY_MAP},
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        replace({"String": "a"}, "aa"),
        replace({"String": " "}, "\ufdfa"),
        replace({"String": ""}, "x"),
        replace({"Regex": ""}, "yy"),
        replace({"Regex": "."}, ""),
        replace({"Regex": "(?=a)"}, "<s>"),
    ],
    "pre_tokenizer": [
        *({"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")),
        {"type": "UnicodeScripts"},
        {"type": "Digits", "individual_digits": False},
        {"type": "Punctuation", "behavior": "MergedWithPrevious"},
        {"type": "CharDelimiterSplit", "delimiter": "a"},
        {"type": "FixedLength", "length": 0},
        {"type": "FixedLength", "length": 3},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": True},
        _BYTE_LEVEL,
        {**_BYTE_LEVEL, "add_prefix_space": True, "use_regex": True},
        split(""),
        split("(a+)+$"),
        split(r"(?:\p{L}\p{M}*)+"),
        {**split("a"), "pattern": {"String": ""}, "invert": True, "behavior": "Removed"},
    ],
    "post_processor": [
        template([("<s>", 0), ("<s>", 0)], [("</s>", 2)]),
        {**template([], []), "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2},
        {"type": "BertProcessing", "sep": ["x", 7], "cls": ["y", 8]},
        _BYTE_LEVEL,
    ],
    "decoder": [
        *({"type": name} for name in ("ByteFallback", "Fuse", "ByteLevel")),
        {"type": "BPEDecoder", "suffix": "</w>"},
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        {"type": "Strip", "content": "a", "start": 1, "stop": 3},
        replace({"String": "a"}, "aa"),
        replace({"Regex": "a*"}, "bb"),
    ],
}
_SEQUENCES = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
NUMBERS = (
    *(0, 1, -1, 2, 3, 255, 256, 65_535, 65_536),
    *(2**24 - 1, 2**31 - 1, 2**31, 2**32, 2**63, 2**64),
)
STRINGS = (
    *("", " ", "a", "the", "\0", "\x1b[31mred", "\ud800", "\ufdfa", "é", "e\u0301", "▁", "Ġ", "##"),
    *("<s>", "</s>", "[CLS]", "<unk>", "<0x41>", "A", "B", "$A", "\n", "\u2028", "\U0010ffff"),
    *("(a+)+$", ".*", "[", "(?i", r"\p{L}+", "x" * 300, "a" * 9000, "中" * 70_000),
    *("BPE", "WordPiece", "Unigram", "WordLevel", "Sequence", "ByteLevel", "Replace", "Split"),
)


@dataclass(frozen=True)
class Mutant:
    """A changed tokenizer.json.

    Attributes:
      shape: it was made of.
      changes: (path, kind) of each change; a number in a path reads [], a key of a vocabulary *.
      data: its bytes.
    """

    shape: str
    changes: tuple[tuple[str, str], ...]
    data: bytes


def draw_mutant(draw: random.Random, of: dict[str, dict[str, Any]]) -> Mutant:
    """One to three changes of one shape; mostly one, so that the rest still matters."""
    shape = draw.choice(sorted(of))
    config = copy.deepcopy(of[shape])
    changes = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        kind = draw.choice([*sorted(_KINDS), *_OFTEN_TAKEN])
        changes.append((_KINDS[kind](config, draw), kind))
    data = json.dumps(config).encode()
    if draw.random() < 0.08:
        kind, change = draw.choice(sorted(_TEXT_KINDS.items()))
        data = change(data, draw)
        changes.append(("(text)", kind))
    return Mutant(shape, tuple(changes), data)


def _places(part: Any, path: Path = ()) -> Iterator[tuple[str, Path, Any]]:
    """The path of each value, as a pattern and as it is, and the value."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        yield _pattern((*path, key)), (*path, key), value
        if isinstance(value, dict | list):
            yield from _places(value, (*path, key))


def _pattern(path: Path) -> str:
    parts = ["[]" if isinstance(key, int) else key for key in path]
    text = ".".join(parts)
    text = re.sub(r"(\.(?:normalizers|pretokenizers|processors|decoders)\.\[\])+", r"\1", text)
    return re.sub(
        r"^(model\.vocab|post_processor.*special_tokens)\.[^.\[]*.*?(?=\.ids|$)", r"\1.*", text
    )


def _draw_place(
    config: Any, draw: random.Random, like: tuple[type, ...] = ()
) -> tuple[Any, str | int, str]:
    """The object or list that holds a value, its key, its pattern; patterns are equally likely.

    Where `like` is given, mostly one whose value is of these types: others are soon refused.
    """
    by_pattern: dict[str, list[Path]] = {}
    alike = like if draw.random() < 0.8 else ()
    for pattern, path, value in _places(config):
        if not alike or type(value) in alike:
            by_pattern.setdefault(pattern, []).append(path)
    if not by_pattern:
        config["model"] = {}
        return config, "model", "model"
    pattern = draw.choice(sorted(by_pattern))
    path = draw.choice(by_pattern[pattern])
    holder = config
    for key in path[:-1]:
        holder = holder[key]
    return holder, path[-1], pattern


# A change of holder[key]
Edit = Callable[[Any, Any, random.Random], object]
Change = Callable[[Any, random.Random], str]  # of a tokenizer.json; returns the path


def _edit(edit: Edit, *like: type) -> Change:
    def change(config: Any, draw: random.Random) -> str:
        holder, key, pattern = _draw_place(config, draw, like)
        edit(holder, key, draw)
        return pattern

    return change


def _set(value_of: Callable[[Any, random.Random], Any], *like: type) -> Change:
    def edit(holder: Any, key: Any, draw: random.Random) -> None:
        holder[key] = copy.deepcopy(value_of(holder[key], draw))

    return _edit(edit, *like)


def _rename(holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, dict):
        holder[draw.choice(STRINGS[:24])] = holder.pop(key)


def _repeat(holder: Any, key: Any, draw: random.Random) -> None:
    """A list many times as long, an item often in it, or a text often after itself."""
    value, times = holder[key], draw.choice([2, 3, 40, 300])
    if isinstance(value, list | str):
        holder[key] = (value * times)[:400_000]
    elif isinstance(holder, list):
        holder.extend([copy.deepcopy(value)] * times)


def _swap(config: Any, draw: random.Random) -> str:
    """Two values change places."""
    (one, first, pattern), (two, second, _) = _draw_place(config, draw), _draw_place(config, draw)
    one[first], two[second] = copy.deepcopy(two[second]), copy.deepcopy(one[first])
    return pattern


def _add_steps(config: Any, draw: random.Random) -> str:
    """Puts steps before or after those of a part."""
    part = draw.choice(sorted(STEPS))
    steps = draw.choices(STEPS[part], k=draw.choice([1, 1, 2, 5]))
    old = [config[part]] if config.get(part) is not None and draw.random() < 0.8 else []
    steps = draw.choice([[*steps, *old], [*old, *steps]]) * draw.choice([1, 1, 1, 12])
    config[part] = copy.deepcopy({"type": "Sequence", _SEQUENCES[part]: steps})
    return part


def _nest(config: Any, draw: random.Random) -> str:
    """Sequences within sequences."""
    part = draw.choice(sorted(STEPS))
    for _ in range(draw.choice([1, 3, 30, 55, 70, 300])):
        config[part] = {"type": "Sequence", _SEQUENCES[part]: [config.get(part)]}
    return part


def _add_tokens(config: Any, draw: random.Random) -> str:
    if not isinstance(config.get("added_tokens"), list):
        config["added_tokens"] = []
    contents = [*STRINGS[:30], f"<x{draw.randrange(99)}>", "a b", "fox", "ab", "ing"]
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for _ in range(draw.choice([1, 1, 3, 70])):
        where = draw.randrange(len(config["added_tokens"]) + 1)
        token = added(draw.choice([0, 9, 500, 2**20]), draw.choice(contents))
        config["added_tokens"].insert(where, token | {f: draw.random() < 0.3 for f in flags})
    return "added_tokens"


def _on_vocab(
    change: Callable[[dict[str, int], list[str], random.Random], object],
) -> Change:
    """A change of a vocabulary, with two of its tokens."""

    def apply(config: Any, draw: random.Random) -> str:
        model = config.get("model")
        vocab = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocab, dict) and len(vocab) > 8 and set(map(type, vocab.values())) == {int}:
            change(vocab, draw.sample(sorted(vocab), 2), draw)
        return "model.vocab"

    return apply


def _open_gap(vocab: dict[str, int], tokens: list[str], draw: random.Random) -> None:
    gap = draw.choice([1, 7, 60_000, 70_000, 2**24])
    vocab |= {token: i + gap for token, i in vocab.items() if i > len(vocab) // 2}


def _shuffle_ids(vocab: dict[str, int], tokens: list[str], draw: random.Random) -> None:
    vocab |= zip(list(vocab), draw.sample(sorted(vocab.values()), len(vocab)), strict=True)


def _on_merges(
    change: Callable[[list, dict[str, int], random.Random], object],
) -> Change:
    """A change of the merges of a BPE."""

    def apply(config: Any, draw: random.Random) -> str:
        model = config.get("model")
        merges = model.get("merges") if isinstance(model, dict) else None
        if isinstance(merges, list) and len(merges) > 2 and isinstance(model.get("vocab"), dict):
            change(merges, model["vocab"], draw)
        return "model.merges"

    return apply


def _turn_merge(merges: list, vocab: dict[str, int], draw: random.Random) -> None:
    at = draw.randrange(len(merges))
    merges[at] = merges[at][::-1]


def _add_merge(merges: list, vocab: dict[str, int], draw: random.Random) -> None:
    pair = draw.choices(sorted(map(str, vocab)) or ["a"], k=2)
    merges.insert(draw.randrange(len(merges)), pair)
    vocab.setdefault("".join(pair), len(vocab))


_IDS: dict[str, Change] = {
    "id twice": _on_vocab(lambda vocab, tokens, draw: vocab.update({tokens[0]: vocab[tokens[1]]})),
    "gap in ids": _on_vocab(_open_gap),
    "shuffled ids": _on_vocab(_shuffle_ids),
    "one more id": _on_vocab(lambda vocab, tokens, draw: vocab.update({"ab<": len(vocab)})),
    "a token after a gap": _on_vocab(
        lambda vocab, tokens, draw: vocab.update({"".join(tokens): len(vocab) + 3})
    ),
    "one id less": _on_vocab(lambda vocab, tokens, draw: vocab.pop(tokens[0])),
}
_MERGES: dict[str, Change] = {
    "shuffled merges": _on_merges(lambda merges, vocab, draw: draw.shuffle(merges)),
    "merge twice": _on_merges(lambda merges, vocab, draw: merges.insert(0, draw.choice(merges))),
    "one merge less": _on_merges(lambda merges, vocab, draw: merges.remove(draw.choice(merges))),
    "merge turned round": _on_merges(_turn_merge),
    "one more merge": _on_merges(_add_merge),
}
_OTHERS: dict[str, Change] = {
    "drop": _edit(lambda holder, key, draw: holder.pop(key)),
    "null": _set(lambda _, draw: None),
    "number": _set(lambda _, draw: draw.choice(NUMBERS), int),
    "near": _set(lambda old, draw: old + draw.choice([-1, 1]) if type(old) is int else 1, int),
    "fraction": _set(lambda _, draw: draw.choice([0.5, -1.0, 1e30, -1e300, 1e-9]), float, int),
    "bool": _set(lambda old, draw: not old, bool),
    "text": _set(lambda _, draw: draw.choice(STRINGS), str),
    "empty": _set(lambda old, draw: type(old)() if old is not None else {}, list, dict, str),
    "wrapped": _set(lambda old, draw: draw.choice([[old], {"a": old}, [[old] * 2]])),
    "other step": _set(lambda _, draw: draw.choice(draw.choice(list(STEPS.values()))), dict),
    "swap": _swap,
    "rename": _edit(_rename),
    "repeat": _edit(_repeat),
    "steps": _add_steps,
    "nest": _nest,
    "tokens": _add_tokens,
}
_KINDS = {**_OTHERS, **_IDS, **_MERGES}
_OFTEN_TAKEN = ("tokens", "steps", "repeat", "text", "number", "near", "bool")


def _duplicate_key(data: bytes, draw: random.Random) -> bytes:
    """A key of the whole or of the model again, before what was there or after it."""
    config = json.loads(data)
    model = draw.random() < 0.5 and isinstance(config.get("model"), dict)
    part = config["model"] if model else config
    if not part:
        return data
    key = draw.choice(sorted(part))
    value = draw.choice([None, {}, [], 0, 2**31, "x", draw.choice(list(part.values()))])
    item = f"{json.dumps(key)}: {json.dumps(value)}"
    text = json.dumps(part)
    text = f"{{{item}, {text[1:]}" if draw.random() < 0.5 else f"{text[:-1]}, {item}}}"
    return (json.dumps(config | {"model": 0})[:-2] + text + "}" if model else text).encode()


def _flip_bytes(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 2, 9])):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


_TEXT_KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "duplicate key": _duplicate_key,
    "flipped bytes": _flip_bytes,
    "cut off": lambda data, draw: data[: draw.randrange(len(data))],
    "brackets": lambda data, draw: b"[" * draw.choice([100, 200, 100_000]) + data,
    "byte order mark": lambda data, draw: b"\xef\xbb\xbf" + data,
    "not a number": lambda data, draw: data.replace(b"false", b"NaN", 1),
    "long number": lambda data, draw: data.replace(b"0", b"1" * draw.choice([20, 400, 5000]), 1),
}
