"""Reads published tokenizer files: a `tokenizers.Tokenizer` and the roles of its special tokens.

The files are tokenizer.json, or vocab.json + merges.txt as published for GPT-2 and RoBERTa, and
optionally special_tokens_map.json, tokenizer_config.json and chat templates in the same directory.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from pipelines import store
from pipelines.encoding.backends import failures_as_data_errors
from pipelines.store import is_url
from schemas.commands.terminal import command_name
from schemas.errors import DataError, TextmillError, UsageError
from schemas.tokenizer_json import (
    TOKENIZER_CONFIG,
    check_size,
    check_vocabulary,
    read_tokenizer_json,
    try_tokenizer,
)

# transformers' names, in order of precedence: BERT has no bos_token, and its [CLS] serves as one.
_NAMES = {
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "pad": ("pad_token",),
    "mask": ("mask_token",),
    "unk": ("unk_token",),
}
COMMON_SPECIALS = {
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("</s>", "[SEP]", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "pad": ("<pad>", "[PAD]"),
    "mask": ("<mask>", "[MASK]"),
    "unk": ("<unk>", "[UNK]"),
}
_WHOLE, _PARTS = "tokenizer.json", ("vocab.json", "merges.txt")
_BESIDE = (TOKENIZER_CONFIG, "special_tokens_map.json")  # the second takes precedence
_KEPT = (
    *("clean_up_tokenization_spaces", "model_input_names", "model_max_length"),
    *("padding_side", "truncation_side"),
)
_CHAT_TEMPLATE, _JINJA = "chat_template.jinja", ".jinja"
_MORE_TEMPLATES = "additional_chat_templates"  # a directory
DEFAULT = "default"  # the name of a chat template that has none
_ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def _remedy() -> str:
    return (
        "give a tokenizer.json (`AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)` of "
        "transformers writes one), or make your own with "
        f"{command_name('pipelines.train_tokenizer')}"
    )


@dataclass(frozen=True)
class TokenizerFiles:
    """The content of a tokenizer's files.

    Attributes:
      tokenizer: the tokenizer, not yet checked.
      config: the parsed tokenizer.json; None for vocab.json + merges.txt.
      named: role to token, from special_tokens_map.json and tokenizer_config.json.
      place: the file to name in errors.
      chat_templates: name to template; one without a name is "default".
      settings: the fields of tokenizer_config.json that a dataset's copy keeps.
    """

    tokenizer: Tokenizer
    config: dict[str, Any] | None
    named: dict[str, str]
    place: str
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_tokenizer_files(path: str) -> TokenizerFiles:
    """Reads a tokenizer.json, a directory that contains one, or vocab.json + merges.txt.

    Raises:
      UsageError: there is no such file, or the directory has no tokenizer that can be read.
      DataError: a file is broken.
    """
    if is_url(path):
        return _from_store(path)
    if os.path.isfile(path):
        parsed, folder = parse_tokenizer(_read(path), path), os.path.dirname(path)
        if not path.endswith(_WHOLE):
            return TokenizerFiles(*parsed, {}, path)
        return TokenizerFiles(*parsed, place=path, **_read_beside(folder))
    if not os.path.isdir(path):
        raise UsageError(f"--tokenizer={path}: there is no such file or directory; {_remedy()}")
    whole = os.path.join(path, _WHOLE)
    if os.path.isfile(whole):
        parsed = parse_tokenizer(_read(whole), whole)
        return TokenizerFiles(*parsed, place=whole, **_read_beside(path))
    vocab, merges = (os.path.join(path, name) for name in _PARTS)
    if os.path.isfile(vocab) and os.path.isfile(merges):
        tokenizer = _from_vocab_and_merges(vocab, merges)
        return TokenizerFiles(tokenizer, None, place=vocab, **_read_beside(path))
    names = ", ".join(sorted(os.listdir(path))[:9]) or "nothing"
    raise UsageError(
        f"--tokenizer={path}: the directory has neither tokenizer.json nor vocab.json with "
        f"merges.txt (it holds {names}); {_remedy()}"
    )


def _from_store(path: str) -> TokenizerFiles:
    """Copies the files from an object store to a temporary directory and reads them there."""
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        place, there = path, {*store.sizes(path)}
        local = folder
        if not there and store.exists(path):
            place, _, name = path.rpartition("/")
            there = {*store.sizes(place)} if name == _WHOLE else {name}
            local = os.path.join(folder, name)
        known = {os.path.basename(local), _WHOLE, *_PARTS, *_BESIDE, _CHAT_TEMPLATE}
        for name in there:
            beside, _, _ = name.rpartition("/")
            if name in known or beside == _MORE_TEMPLATES:
                to = os.path.join(folder, beside)
                os.makedirs(to, exist_ok=True)
                store.local_copy(os.path.join(place, name), to)
        try:
            return replace(read_tokenizer_files(local), place=path)
        except TextmillError as error:
            raise type(error)(str(error).replace(local, path)) from error


def parse_tokenizer(data: bytes, place: str) -> tuple[Tokenizer, dict[str, Any]]:
    """Parses the bytes of a tokenizer.json: the tokenizer and the parsed JSON.

    Raises:
      DataError: they exceed the limits on untrusted tokenizers, or `tokenizers` cannot read them.
    """
    config = read_tokenizer_json(data, place)
    try_tokenizer(config, place)
    with failures_as_data_errors(
        f"{place} is not a tokenizer that `tokenizers` can read", _remedy()
    ):
        return Tokenizer.from_buffer(data), config


def canonical_config(data: bytes, config: Mapping[str, Any] | None, place: str) -> dict[str, Any]:
    """The parsed tokenizer.json as `tokenizers` writes it.

    A BPE's vocabulary and merges, nearly all of the file, are taken from `config` instead of parsed
    again: `tokenizers` changes only their order and merges that occur twice.

    Args:
      data: the tokenizer.json that `tokenizers` wrote.
      config: the parsed content of the file that it read, if it was one.
      place: the name of the file in errors.
    """
    model = config["model"] if config is not None else {}
    merges = model.get("merges") or [""]
    head, vocab, _ = data.partition(b'"vocab":{')
    if model.get("type") != "BPE" or isinstance(merges[0], str) or not vocab:
        return read_tokenizer_json(data, place)
    rest = json.loads(head + b'"vocab":{}}}')
    rest["model"] |= {"vocab": model["vocab"], "merges": merges}
    return rest


def merged_tokens(config: Mapping[str, Any], among: Set[str]) -> set[str]:
    """The tokens among some that a BPE's merges produce: they stand for ordinary text."""
    prefix = config["model"].get("continuing_subword_prefix") or ""
    ends = {token[-1:] for token in among}
    merges = config["model"].get("merges", ())
    pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges)
    likely = ((left, right) for left, right in pairs if right[-1:] in ends)
    return {left + right.removeprefix(prefix) for left, right in likely} & among


def _read(path: str) -> bytes:
    try:
        check_size(os.path.getsize(path), path)
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _read_object(*path_parts: str) -> dict[str, Any]:
    """Reads a file that must hold a JSON object; {} if there is no file."""
    path = os.path.join(*path_parts)
    if not os.path.isfile(path):
        return {}
    try:
        value = json.loads(_read(path))
        json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}; correct or remove it") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a JSON {type(value).__name__}, not an object; correct it")
    return value


def _read_beside(directory: str) -> dict[str, Any]:
    """Values from the other files of the directory, by field of TokenizerFiles."""
    config = _read_object(directory, TOKENIZER_CONFIG)
    return {
        "named": _named_roles(directory),
        "chat_templates": _chat_templates(directory),
        "settings": {name: config[name] for name in _KEPT if name in config},
    }


def _named_roles(directory: str) -> dict[str, str]:
    """Role to token; special_tokens_map.json takes precedence over tokenizer_config.json."""
    tokens: dict[str, Any] = {}
    for name in _BESIDE:
        found = _read_object(directory, name)
        tokens |= {key: value for key, value in found.items() if value is not None}
    named = {}
    for role, keys in _NAMES.items():
        for key in reversed(keys):
            token = tokens.get(key)
            if isinstance(token, dict):  # an AddedToken written out
                token = token.get("content")
            if isinstance(token, str) and token:
                named[role] = token
    return named


def _chat_templates(directory: str) -> dict[str, str]:
    """Name to chat template; template files take precedence over tokenizer_config.json."""
    value = _read_object(directory, TOKENIZER_CONFIG).get("chat_template")
    listed = value if isinstance(value, list) else [{"name": DEFAULT, "template": value}]
    templates = {
        one["name"]: one["template"]
        for one in listed
        if isinstance(one, dict) and all(isinstance(one.get(k), str) for k in ("name", "template"))
    }
    more = os.path.join(directory, _MORE_TEMPLATES)
    names = sorted(os.listdir(more)) if os.path.isdir(more) else []
    files = {n[: -len(_JINJA)]: os.path.join(more, n) for n in names if n.endswith(_JINJA)}
    if os.path.isfile(os.path.join(directory, _CHAT_TEMPLATE)):
        files[DEFAULT] = os.path.join(directory, _CHAT_TEMPLATE)
    for path in files.values():
        _refuse_to_leave(directory, path)
    return templates | {name: _read(path).decode(errors="replace") for name, path in files.items()}


def _refuse_to_leave(directory: str, path: str) -> None:
    """Rejects links out of the directory: a published template must not copy an arbitrary file.

    Raises:
      DataError: `path` is a link that leads out of the directory.
    """
    root, target = os.path.realpath(directory), os.path.realpath(path)
    parent = os.path.dirname(root)
    roots = [root]
    if os.path.basename(parent) == "snapshots":  # huggingface_hub's cache links to its blobs
        roots.append(os.path.join(os.path.dirname(parent), "blobs"))
    if all(os.path.commonpath((root, target)) != root for root in roots):
        raise DataError(
            f"{path} is a link to {target}, outside the tokenizer's directory: copy the file into "
            "the directory, or pass it as --chat_template"
        )


def _from_vocab_and_merges(vocab_path: str, merges_path: str) -> Tokenizer:
    """The byte-level BPE that transformers builds from the files of GPT-2, RoBERTa or OPT."""
    directory = os.path.dirname(vocab_path)
    config = _read_object(directory, TOKENIZER_CONFIG)
    add_prefix_space = config.get("add_prefix_space") is True
    vocab, lines = _read_object(vocab_path), _read(merges_path)
    check_vocabulary(vocab, vocab_path)
    with failures_as_data_errors(f"{vocab_path} and {merges_path} form no tokenizer", _remedy()):
        pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines.decode().split("\n")]
        merges = [pair for pair in pairs if pair != ("",) and pair[0] != "#version:"]
        tokenizer = Tokenizer(models.BPE(vocab, merges))  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    named = _named_roles(directory)
    # RoBERTa's vocabulary still holds GPT-2's <|endoftext|>, as ordinary text.
    family = _ROBERTA_SPECIALS if "<s>" in vocab else ("<|endoftext|>",)
    specials = {*family, *named.values()} & vocab.keys() - {"".join(pair) for pair in merges}
    tokenizer.add_special_tokens(
        [
            # As published for RoBERTa, the mask includes the space before it.
            AddedToken(token, lstrip=token == "<mask>", normalized=False, special=True)
            for token in sorted(specials, key=vocab.__getitem__)
        ]
    )
    _add_post_processor(tokenizer, named, config.get("add_bos_token") is True)
    return tokenizer


def _add_post_processor(tokenizer: Tokenizer, named: Mapping[str, str], add_bos: bool) -> None:
    """Adds `<s> text </s>` for RoBERTa, recognized by its mask, or a bos if `add_bos` is set."""
    cls, sep, mask = map(tokenizer.token_to_id, ("<s>", "</s>", "<mask>"))
    bos = named.get("bos")
    if cls is not None and sep is not None and mask is not None:
        tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", sep), ("<s>", cls), add_prefix_space=False
        )
    elif add_bos and bos is not None and tokenizer.token_to_id(bos) is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"],
            pair=[bos, "$A", bos, "$B"],
            special_tokens=[(bos, tokenizer.token_to_id(bos))],
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
