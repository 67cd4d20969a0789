"""Tokenizer files of every shape, changed a little: what `tests.stress.fuzz_tokenizers` loads."""

import base64
import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.tools.tokenizer_factory import config_of, trained_tokenizer

Path = tuple[str | int, ...]
TRUNCATION = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": 16},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 1,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_EMPTY_MAP = base64.b64encode((1024).to_bytes(4, "little") + bytes(1024) + b"a\0").decode()
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


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


def shapes() -> dict[str, dict[str, Any]]:
    """A tokenizer.json of each published shape, small, every field written out."""
    roberta = config_of(trained_tokenizer())
    gpt2 = copy.deepcopy(roberta)
    gpt2 |= {"added_tokens": gpt2["added_tokens"][:1], "post_processor": dict(gpt2["decoder"])}
    gpt2 |= {"truncation": TRUNCATION, "padding": PADDING}
    cl100k = copy.deepcopy(roberta)
    cl100k["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split(CL100K), _BYTE_LEVEL]}
    cl100k["normalizer"] = {"type": "NFC"}
    size = len(cl100k["model"]["vocab"])
    cl100k["added_tokens"].append(added(size, "<|tool|>", special=False, normalized=True))
    cl100k["post_processor"] = {
        "type": "Sequence",
        "processors": [_BYTE_LEVEL, template([("<s>", 0)], [])],
    }
    return {
        "gpt2": gpt2,
        "roberta": roberta,
        "split": cl100k,
        "bert": _word_piece(),
        "unigram": _unigram(),
        "llama": _byte_fallback(),
        "words": _word_level(),
    }


def _config(tokens: list[str], specials: int, model: dict[str, Any], **parts: Any) -> dict:
    parts = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder")) | parts
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(i, token) for i, token in enumerate(tokens[:specials])],
        **parts,
        "model": {"vocab": {token: i for i, token in enumerate(tokens)}, **model},
    }


def _word_piece() -> dict[str, Any]:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'中"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters)]
    return _config(
        [*tokens, "the", "quick", "##ing", "un", "##able"],
        5,
        {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=template([("[CLS]", 2)], [("[SEP]", 3)]),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        truncation=TRUNCATION,
        padding=PADDING,
    )


def _unigram() -> dict[str, Any]:
    letters = "abcdefghijklmnopqrstuvwxyz▁.,'中"
    pieces = ["<pad>", "</s>", "<unk>", "<mask>", "▁the", "ing", "▁quick", *letters]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    config = _config(
        pieces,
        4,
        {"type": "Unigram", "unk_id": 2, "byte_fallback": False},
        normalizer={
            "type": "Sequence",
            "normalizers": [
                replace({"String": "``"}, '"'),
                {"type": "NFKD"},
                {"type": "StripAccents"},
                {"type": "Lowercase"},
                {"type": "Precompiled", "precompiled_charsmap": _EMPTY_MAP},
                replace({"Regex": " {2,}"}, " "),
                {"type": "Strip", "strip_left": False, "strip_right": True},
            ],
        },
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        post_processor=template([], [("</s>", 1)]),
        decoder=dict(space),
    )
    config["model"]["vocab"] = [[piece, -float(i)] for i, piece in enumerate(pieces)]
    return config


def _byte_fallback() -> dict[str, Any]:
    units = ["▁", *"abcdefghijklmnopqrstuvwxyz.,'"]
    merges = [["t", "h"], ["th", "e"], ["▁", "the"], ["i", "n"], ["in", "g"], ["▁", "a"]]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *units]
    return _config(
        [*tokens, *map("".join, merges)],
        3,
        {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "merges": merges,
        },
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")],
        },
        post_processor=template([("<s>", 1)], []),
        decoder={
            "type": "Sequence",
            "decoders": [
                replace({"String": "▁"}, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    )


def _word_level() -> dict[str, Any]:
    return _config(
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"the quick brown fox a b , .".split()],
        5,
        {"type": "WordLevel", "unk_token": "<unk>"},
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Whitespace"},
                {"type": "Punctuation", "behavior": "Isolated"},
                {"type": "Digits", "individual_digits": True},
            ],
        },
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": False},
    )


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
    0,
    1,
    -1,
    2,
    3,
    255,
    256,
    65_535,
    65_536,
    2**24 - 1,
    2**31 - 1,
    2**31,
    2**32,
    2**63,
    2**64,
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


def _setting(
    value_of: Callable[[Any, random.Random], Any], *like: type
) -> Callable[[Any, random.Random], str]:
    def change(config: Any, draw: random.Random) -> str:
        holder, key, pattern = _draw_place(config, draw, like)
        holder[key] = copy.deepcopy(value_of(holder[key], draw))
        return pattern

    return change


def _drop(config: Any, draw: random.Random) -> str:
    holder, key, pattern = _draw_place(config, draw)
    del holder[key]
    return pattern


def _swap(config: Any, draw: random.Random) -> str:
    """Two values change places."""
    (one, first, pattern), (two, second, _) = _draw_place(config, draw), _draw_place(config, draw)
    one[first], two[second] = copy.deepcopy(two[second]), copy.deepcopy(one[first])
    return pattern


def _rename(config: Any, draw: random.Random) -> str:
    holder, key, pattern = _draw_place(config, draw)
    value = holder[key]
    if isinstance(holder, dict):
        del holder[key]
        holder[draw.choice(STRINGS[:24])] = value
    return pattern


def _repeat(config: Any, draw: random.Random) -> str:
    """A list many times as long, an item often in it, or a text often after itself."""
    holder, key, pattern = _draw_place(config, draw)
    value, times = holder[key], draw.choice([2, 3, 40, 300])
    if isinstance(value, list | str):
        holder[key] = (value * times)[:400_000]
    elif isinstance(holder, list):
        holder.extend([copy.deepcopy(value)] * times)
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


def _move_ids(config: Any, draw: random.Random) -> str:
    """Ids of the vocabulary with a gap, twice, or in another order; a token more, or one less."""
    vocab = config.get("model", {}).get("vocab") if isinstance(config.get("model"), dict) else None
    if not isinstance(vocab, dict) or len(vocab) < 9 or set(map(type, vocab.values())) != {int}:
        return "model.vocab"
    tokens = draw.sample(sorted(vocab), 6)
    which = draw.randrange(5)
    if which == 0:
        vocab[tokens[0]] = vocab[tokens[1]]
    elif which == 1:
        gap = draw.choice([1, 7, 60_000, 70_000, 2**24])
        vocab |= {token: i + gap for token, i in vocab.items() if i > len(vocab) // 2}
    elif which == 2:
        ids = draw.sample(sorted(vocab.values()), len(vocab))
        vocab |= dict(zip(list(vocab), ids, strict=True))
    elif which == 3:
        vocab["".join(tokens[:2])] = draw.choice([len(vocab), len(vocab) + 3])
    else:
        del vocab[tokens[0]]
    return "model.vocab"


def _change_merges(config: Any, draw: random.Random) -> str:
    """Merges of a BPE in another order, one twice, one gone, one turned round, one more."""
    model = config.get("model")
    merges = model.get("merges") if isinstance(model, dict) else None
    if isinstance(merges, list) and len(merges) > 2 and isinstance(model.get("vocab"), dict):
        at, which = draw.randrange(len(merges)), draw.randrange(5)
        if which == 0:
            draw.shuffle(merges)
        elif which == 1:
            merges.insert(draw.randrange(len(merges)), merges[at])
        elif which == 2:
            del merges[at]
        elif which == 3:
            merges[at] = merges[at][::-1]
        elif vocab := sorted(map(str, model["vocab"])):
            merges.insert(at, [draw.choice(vocab), draw.choice(vocab)])
            model["vocab"].setdefault("".join(merges[at]), len(vocab))
    return "model.merges"


def _add_tokens(config: Any, draw: random.Random) -> str:
    if not isinstance(config.get("added_tokens"), list):
        config["added_tokens"] = []
    for _ in range(draw.choice([1, 1, 3, 70])):
        flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
        content = draw.choice(
            [*STRINGS[:30], f"<x{draw.randrange(99)}>", "a b", "fox", "ab", "ing"]
        )
        where = draw.randrange(len(config["added_tokens"]) + 1)
        token = added(draw.choice([0, 9, 500, 2**20]), content)
        config["added_tokens"].insert(where, token | {f: draw.random() < 0.3 for f in flags})
    return "added_tokens"


_KINDS: dict[str, Callable[[Any, random.Random], str]] = {
    "drop": _drop,
    "null": _setting(lambda _, draw: None),
    "number": _setting(lambda _, draw: draw.choice(NUMBERS), int),
    "near": _setting(lambda old, draw: old + draw.choice([-1, 1]) if type(old) is int else 1, int),
    "fraction": _setting(lambda _, draw: draw.choice([0.5, -1.0, 1e30, -1e300, 1e-9]), float, int),
    "bool": _setting(lambda old, draw: not old, bool),
    "text": _setting(lambda _, draw: draw.choice(STRINGS), str),
    "empty": _setting(lambda old, draw: type(old)() if old is not None else {}, list, dict, str),
    "wrapped": _setting(lambda old, draw: draw.choice([[old], {"a": old}, [[old] * 2]])),
    "other step": _setting(lambda _, draw: draw.choice(draw.choice(list(STEPS.values()))), dict),
    "swap": _swap,
    "rename": _rename,
    "repeat": _repeat,
    "steps": _add_steps,
    "nest": _nest,
    "ids": _move_ids,
    "merges": _change_merges,
    "tokens": _add_tokens,
}

_OFTEN_TAKEN = ("ids", "merges", "tokens", "steps", "repeat", "text", "number", "near", "bool")


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
