"""The tokenizer.json of a published directory, as `transformers` builds it. Python 3.8 syntax.

A directory without one has vocab.json + merges.txt, as published for GPT-2, RoBERTa, CodeGen and
Qwen 2, or BERT's vocab.txt. The class in tokenizer_config.json or config.json, else the model_type
in config.json, decides how text is normalized and split, and which tokens are special. Other files
add tokens:

    added_tokens.json, special_tokens_map.json     {"<|im_start|>": 50257}; read without the next
    added_tokens_decoder in tokenizer_config.json  {"50257": {"content": "<|im_start|>", ...}}
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
)

from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.tokenizers.tokenizer_json import (
    MOST_BYTES,
    TOKENIZER_CONFIG,
    check_vocabulary,
    token_ids,
)
from textmill.schemas.typed_json import parse_json, quote, read_bounded

WHOLE, VOCABULARY, MERGES, LINES = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
ADDED, SPECIALS, MODEL = "added_tokens.json", "special_tokens_map.json", "config.json"
FILES = (WHOLE, VOCABULARY, MERGES, LINES, TOKENIZER_CONFIG, ADDED, SPECIALS, MODEL)
ROLES = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip")
_REMEDY = (
    "save it as tokenizer.json with transformers: "
    "`AutoTokenizer.from_pretrained(DIR).save_pretrained(OTHER)`"
)
_END = "<|endoftext|>"
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Config = Dict[str, Any]


def read_object(*path_parts: str) -> Config:
    """Reads a file that must hold a JSON object; {} if there is no file.

    Raises:
      DataError: it is not a JSON object, or too large.
    """
    path = os.path.join(*path_parts)
    if not os.path.isfile(path):
        return {}
    try:
        value = parse_json(read_bounded(path, MOST_BYTES), path)
    except DataError as error:
        raise DataError(f"{error}; correct or remove it") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a JSON {type(value).__name__}, not an object; correct it")
    return value


def named_settings(directory: str) -> Config:
    """tokenizer_config.json with the tokens of special_tokens_map.json, which take precedence.

    Like transformers, it ignores the latter beside an added_tokens_decoder.
    """
    config = read_object(directory, TOKENIZER_CONFIG)
    if "added_tokens_decoder" in config:
        return config
    found = read_object(directory, SPECIALS)
    return {**config, **{name: value for name, value in found.items() if value is not None}}


# ---- directories without tokenizer.json ----


class _Class(NamedTuple):
    """A tokenizer class of `transformers`."""

    roles: Mapping[str, str]  # its special tokens, where no file names others
    # Its settings -> its normalizer and pre_tokenizer.
    parts: Callable[[Mapping[str, Any]], Config]
    processor: str = ""  # the type of its post-processor, if it has its own
    is_bert: bool = False  # whether its vocabulary is vocab.txt


def _byte_level(add_prefix_space: bool = True, **others: bool) -> Config:
    flags = {"add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": True}
    return {"type": "ByteLevel", **flags, **others}


def _gpt2_parts(settings: Mapping[str, Any]) -> Config:
    step = _byte_level(settings.get("add_prefix_space") is True)
    return {"normalizer": None, "pre_tokenizer": step}


def _qwen2_parts(settings: Mapping[str, Any]) -> Config:
    split = {"pattern": {"Regex": _QWEN2_PATTERN}, "behavior": "Isolated", "invert": False}
    last = _byte_level(settings.get("add_prefix_space") is True, use_regex=False)
    steps = [{"type": "Split", **split}, last]
    return {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }


# Fields of BERT's normalizer -> their names in tokenizer_config.json.
_BERT_SETTINGS = {
    "handle_chinese_chars": "tokenize_chinese_chars",
    "strip_accents": "strip_accents",
    "lowercase": "do_lower_case",
}


def _bert_parts(settings: Mapping[str, Any]) -> Config:
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    given = {ours: settings.get(theirs) for ours, theirs in _BERT_SETTINGS.items()}
    given = {ours: value for ours, value in given.items() if value is not None}
    return {
        "normalizer": {"type": "BertNormalizer", "strip_accents": None, **normalizer, **given},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }


_GPT2 = _Class(dict.fromkeys(("bos_token", "eos_token", "unk_token"), _END), _gpt2_parts)
_ROBERTA = _Class(
    dict(zip(ROLES, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"))),
    _gpt2_parts,
    processor="RobertaProcessing",
)
_QWEN2 = _Class(dict.fromkeys(("eos_token", "unk_token", "pad_token"), _END), _qwen2_parts)
_BERT = _Class(
    dict(zip(ROLES[2:], ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"))),
    _bert_parts,
    processor="TemplateProcessing",
    is_bert=True,
)
CLASSES = {
    **dict.fromkeys(("GPT2Tokenizer", "CodeGenTokenizer"), _GPT2),
    **dict.fromkeys(
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"), _ROBERTA
    ),
    "Qwen2Tokenizer": _QWEN2,
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), _BERT),
}
"""Tokenizer classes of `transformers`, without "Fast"."""
_CLASS_OF_MODEL = {
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "codegen", "opt", "phi", "starcoder2"), _GPT2),
    **dict.fromkeys(("roberta", "bart", "longformer", "led", "data2vec-text"), _ROBERTA),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next"), _QWEN2),
    **dict.fromkeys(("bert", "distilbert", "electra", "megatron-bert"), _BERT),
}


def assemble(directory: str) -> tuple[Config, str] | None:
    """The tokenizer.json of vocab.json + merges.txt or vocab.txt, and the file to name in errors.

    Returns None if the directory has none of them. The result is unchecked, but for its vocabulary.

    Raises:
      UsageError: the tokenizer is of a class that is not supported, or of an unknown one.
      DataError: a file is broken.
    """
    vocabulary, merges, lines = (os.path.join(directory, n) for n in (VOCABULARY, MERGES, LINES))
    is_bert = not (os.path.isfile(vocabulary) and os.path.isfile(merges))
    if is_bert and not os.path.isfile(lines):
        return None
    place, settings = lines if is_bert else vocabulary, named_settings(directory)
    kind = _class_of(directory, settings, is_bert)
    ids = _read_lines(lines) if is_bert else read_object(vocabulary)
    check_vocabulary(ids, place)
    config: Config = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}
        if is_bert
        else _byte_level(),
        "model": {"vocab": ids},
    }
    if is_bert:
        unknown = _content(settings.get("unk_token")) or _BERT.roles["unk_token"]
        config["model"].update(
            type="WordPiece",
            unk_token=unknown,
            continuing_subword_prefix="##",
            max_input_chars_per_word=100,
        )
    else:
        config["model"].update(_bpe(_read_merges(merges)))
    is_known = kind is not None
    if kind is None:
        kind = _ROBERTA if "<s>" in ids else _GPT2
        made = {"".join(pair) for pair in config["model"]["merges"]}
        roles = {name: t for name, t in kind.roles.items() if t in ids and t not in made}
        kind = kind._replace(roles=roles)
    config.update(kind.parts(settings))
    named = {**kind.roles, **{name: settings[name] for name in ROLES if name in settings}}
    named = {name: token for name, token in named.items() if token}
    if kind.processor == _ROBERTA.processor and named.get("mask_token") == "<mask>":
        # As published, the mask includes the space before it.
        named["mask_token"] = {"content": "<mask>", "lstrip": True}
    with _token_errors(directory):
        _add_tokens(config, _all_tokens(directory, settings, named), directory)
        roles = {name: _content(token) for name, token in named.items()}
        # OPT's vocabulary has <s> and </s>, but no mask.
        is_own = kind.processor and (is_known or {*_ROBERTA.roles} <= kind.roles.keys())
        processor = kind.processor if is_own else ""
        post = _post_processor(processor, roles, settings, token_ids(config))
    return {**config, "post_processor": post}, place


def complete(config: Config, directory: str) -> bool:
    """Adds tokens and settings of files beside a tokenizer.json; returns whether it changed.

    As in transformers, added tokens have the flags of tokenizer_config.json, and so have
    `add_prefix_space` of GPT-2's and RoBERTa's class, and the normalizer of BERT's.

    Raises:
      DataError: a file is broken, or gives a token a different id than transformers.
    """
    settings = read_object(directory, TOKENIZER_CONFIG)
    known = {token["content"] for token in config.get("added_tokens") or []}
    before = json.dumps({**config, "model": None})
    with _token_errors(directory):
        tokens = _declared_tokens(directory, settings, set())
        if "added_tokens_decoder" not in settings:
            tokens = (token for token in tokens if token.value["content"] not in known)
        _add_tokens(config, tokens, directory)
    kind = CLASSES.get(_class_name(settings))
    splits, normalizer = config.get("pre_tokenizer") or {}, config.get("normalizer") or {}
    if kind in (_GPT2, _ROBERTA) and splits.get("type") == "ByteLevel":
        if type(settings.get("add_prefix_space")) is bool:
            splits["add_prefix_space"] = settings["add_prefix_space"]
    if kind is _BERT and normalizer.get("type") == "BertNormalizer":
        for ours, theirs in _BERT_SETTINGS.items():
            if settings.get(theirs) is not None:
                normalizer[ours] = settings[theirs]
    return json.dumps({**config, "model": None}) != before


@contextmanager
def _token_errors(directory: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{directory}: the added tokens of its tokenizer cannot be read: {error!r}; copy the "
            "directory again"
        ) from error


def _class_name(settings: Mapping[str, Any]) -> str:
    name = str(settings.get("tokenizer_class"))
    return name[: -len("Fast")] if name.endswith("Fast") else name


def _class_of(directory: str, settings: Mapping[str, Any], is_bert: bool) -> _Class | None:
    """The class that files name; None if there is none, and the vocabulary has to decide."""
    model = read_object(directory, MODEL)
    named = settings if settings.get("tokenizer_class") is not None else model
    if named.get("tokenizer_class") is not None:
        kind, key = CLASSES.get(_class_name(named)), "tokenizer_class"
    elif model.get("model_type") is not None:
        named, key = model, "model_type"
        kind = _CLASS_OF_MODEL.get(str(model[key]))
    elif not is_bert:
        return None
    else:
        kind, key = None, "tokenizer_class"
    if kind is None or kind.is_bert != is_bert:
        files = LINES if is_bert else f"{VOCABULARY} and {MERGES}"
        raise UsageError(
            f"{directory} has {files} with {key} {quote(named.get(key))}, for which Textmill does "
            f"not know how text is normalized and split; {_REMEDY}"
        )
    return kind


def _read_lines(path: str) -> dict[str, int]:
    text = _decode(path)
    lines = text.split("\n")[: -1 if text.endswith("\n") else None]
    return {line.rstrip(): number for number, line in enumerate(lines)}


def _read_merges(path: str) -> list[list[str]]:
    merges = []
    for number, line in enumerate(_decode(path).split("\n"), 1):
        pair = line.rstrip("\r").split(" ")
        if pair == [""] or pair[0] == "#version:":
            continue
        if len(pair) != 2:
            raise DataError(f"{path}, line {number}: {quote(line)} is not two tokens; correct it")
        merges.append(pair)
    return merges


def _decode(path: str) -> str:
    try:
        return read_bounded(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; copy it again") from error


def _bpe(merges: list[list[str]]) -> Config:
    nothing = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    flags = ("fuse_unk", "byte_fallback", "ignore_merges")
    return {
        "type": "BPE",
        **dict.fromkeys(nothing),
        **dict.fromkeys(flags, False),
        "merges": merges,
    }


def _post_processor(
    kind: str, roles: Mapping[str, str], settings: Mapping[str, Any], ids: Mapping[str, int]
) -> Config:
    cls, sep = roles.get("cls_token", ""), roles.get("sep_token", "")
    if kind == _BERT.processor:
        return _template([cls], [sep], [], 1, ids)
    if kind == _ROBERTA.processor:
        flags = {"trim_offsets": True, "add_prefix_space": False}
        return {"type": kind, "sep": [sep, ids[sep]], "cls": [cls, ids[cls]], **flags}
    bos, eos = roles.get("bos_token"), roles.get("eos_token")
    before = [bos] if bos and settings.get("add_bos_token") is True else []
    after = [eos] if eos and settings.get("add_eos_token") is True else []
    if before or after:
        return _template(before, after, before, 0, ids)
    return _byte_level(trim_offsets=False)


def _template(
    before: list[str], after: list[str], between: list[str], kind: int, ids: Mapping[str, int]
) -> Config:
    """Tokens around each text, and before a second one, which has the token type `kind`."""

    def special(tokens: list[str], type_id: int) -> list[Config]:
        return [{"SpecialToken": {"id": token, "type_id": type_id}} for token in tokens]

    def text(name: str, type_id: int) -> Config:
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [*special(before, 0), text("A", 0), *special(after, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *special(between, kind), text("B", kind), *special(after, kind)],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]}
            for token in (*before, *after)
        },
    }


# ---- added tokens ----


class _Token(NamedTuple):
    """An added token, the id that a file gives it, and whether it is known by its role."""

    value: Config
    declared: int | None = None
    has_role: bool = False


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token or ""


def _added(token: Any, special: bool) -> Config:
    """An entry of added_tokens without its id; `token` is its text or has its flags."""
    flags = token if isinstance(token, dict) else {}
    special = flags.get("special", special) is True
    return {
        "content": _content(token),
        **{name: flags.get(name) is True for name in _FLAGS},
        "normalized": flags.get("normalized", not special) is True,
        "special": special,
    }


def _declared_tokens(
    directory: str, settings: Mapping[str, Any], special: set[str]
) -> Iterator[_Token]:
    """The tokens to which files give an id, by id."""
    found = settings.get("added_tokens_decoder")
    if found is not None:
        for number, token in sorted((int(number), token) for number, token in found.items()):
            yield _Token(_added(token, False), number)
        return
    beside = read_object(directory, ADDED)
    for number, content in sorted((number, content) for content, number in beside.items()):
        yield _Token(_added(content, content in special), number)


def _all_tokens(
    directory: str, settings: Mapping[str, Any], roles: Mapping[str, Any]
) -> Iterator[_Token]:
    """All added tokens of a directory without tokenizer.json, in the order of `transformers`."""
    more = [v for n, v in settings.items() if n.endswith("_token") and n not in ROLES]
    for name in _EXTRA:
        extra = settings.get(name) or []
        more += extra.values() if isinstance(extra, dict) else extra
    named = [roles[role] for role in ROLES if role in roles]
    named += [token for token in more if isinstance(token, (str, dict))]
    yield from _declared_tokens(directory, settings, {_content(token) for token in named})
    for token in named:
        yield _Token(_added(token, True), has_role=True)


def _add_tokens(config: Config, tokens: Iterable[_Token], directory: str) -> None:
    """Adds tokens to a tokenizer.json; one that it lists gets the flags of a declared one."""
    ids, listed = token_ids(config), list(config.get("added_tokens") or [])
    known = {token["content"]: token for token in listed}
    following = max([len(config["model"]["vocab"]), *(token["id"] + 1 for token in listed)])
    for value, declared, has_role in tokens:
        content = value["content"]
        if content in known:
            if declared is not None:
                known[content].update(value)
            known[content]["special"] |= has_role
            continue
        number = ids.get(content, following)
        following = max(following, number + 1)
        if declared not in (None, number):
            raise DataError(
                f"{directory}: {quote(content)} has the id {declared} in added_tokens.json or "
                f"tokenizer_config.json, but transformers gives it {number}; {_REMEDY}"
            )
        known[content] = {"id": number, **value}
        listed.append(known[content])
    if listed:
        config["added_tokens"] = sorted(listed, key=lambda token: token["id"])
