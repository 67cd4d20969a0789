"""Reads published tokenizer files: a `tokenizers.Tokenizer` and the roles of its special tokens.

The files are tokenizer.json, or others of which `schemas.tokenizers.tokenizer_files` makes one, and
optionally special_tokens_map.json, tokenizer_config.json and chat templates in the same directory.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from textmill.pipelines.encoding.reference import (
    AddedToken,
    Tokenizer,
    failures_as_data_errors,
    models,
)
from textmill.schemas.commands.terminal import command_in_message
from textmill.schemas.errors import DataError, TextmillError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.tokenizers.tokenizer_files import (
    FILES,
    LINES,
    MERGES,
    VOCABULARY,
    WHOLE,
    assemble,
    complete,
    named_settings,
    read_object,
)
from textmill.schemas.tokenizers.tokenizer_json import (
    TOKENIZER_CONFIG,
    check_size,
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
_KEPT = (
    *("clean_up_tokenization_spaces", "model_input_names", "model_max_length"),
    *("padding_side", "truncation_side"),
)
_BPE_OPTIONS = (
    *("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"),
    *("fuse_unk", "byte_fallback", "ignore_merges"),
)
_TOKEN_FIELDS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
_CHAT_TEMPLATE, _JINJA = "chat_template.jinja", ".jinja"
_MORE_TEMPLATES = "additional_chat_templates"  # a directory
DEFAULT = "default"  # the name of a chat template that has none


def _remedy() -> str:
    return (
        "give a tokenizer.json (`AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)` of "
        "transformers writes one), or make your own with "
        f"{command_in_message('pipelines.train_tokenizer')}"
    )


@dataclass(frozen=True)
class TokenizerFiles:
    """The content of a tokenizer's files.

    Attributes:
      contents: name to content of the files that decide the tokenizer.
      parse: parses them: the tokenizer, not yet checked, and the parsed tokenizer.json, or what was
        made of other files. Raises DataError.
      named: role to token, from special_tokens_map.json and tokenizer_config.json.
      place: the file to name in errors.
      chat_templates: name to template; one without a name is "default".
      settings: the fields of tokenizer_config.json that a dataset's copy keeps.
    """

    contents: Mapping[str, bytes]
    parse: Callable[[], tuple[Tokenizer, dict[str, Any]]]
    named: dict[str, str]
    place: str
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_tokenizer_files(path: str) -> TokenizerFiles:
    """Reads a tokenizer.json, or a directory with one, vocab.json + merges.txt or vocab.txt.

    Raises:
      UsageError: there is no such file, or the directory has no tokenizer that can be read.
      DataError: a file is broken.
    """
    if store.is_url(path):
        return _from_store(path)
    is_file = os.path.isfile(path)
    if is_file and not path.endswith(WHOLE):
        content = _read(path)
        return TokenizerFiles({WHOLE: content}, partial(parse_tokenizer, content, path), {}, path)
    if not is_file and not os.path.isdir(path):
        raise UsageError(
            f"{flag('tokenizer', path)}: there is no such file or directory; {_remedy()}"
        )
    folder = os.path.dirname(path) if is_file else path
    there = {name: os.path.join(folder, name) for name in FILES}
    contents = {name: _read(file) for name, file in there.items() if os.path.isfile(file)}
    is_bpe = {VOCABULARY, MERGES} <= contents.keys()
    place = there[WHOLE if WHOLE in contents else VOCABULARY if is_bpe else LINES]
    parse = partial(_parse_files, folder, contents)
    return TokenizerFiles(contents, parse, place=place, **_read_beside(folder))


def _parse_files(folder: str, contents: Mapping[str, bytes]) -> tuple[Tokenizer, dict[str, Any]]:
    """Parses the tokenizer of a directory, whose files have some contents."""
    if WHOLE in contents:
        data, place = contents[WHOLE], os.path.join(folder, WHOLE)
        config = read_tokenizer_json(data, place)
        if complete(config, folder):
            data = json.dumps(config).encode()
    elif assembled := assemble(folder):
        config, place = assembled
        data = json.dumps(config).encode()
    else:
        names = ", ".join(sorted(os.listdir(folder))[:9]) or "nothing"
        raise UsageError(
            f"{flag('tokenizer', folder)}: the directory has neither tokenizer.json nor vocab.json "
            f"with merges.txt nor vocab.txt (it holds {names}); {_remedy()}"
        )
    return parse_tokenizer(data, place)


def _from_store(path: str) -> TokenizerFiles:
    """Copies the files from an object store to a temporary directory and reads them there."""
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        place, there = path, {*store.sizes(path)}
        local = folder
        if not there and store.exists(path):
            place, _, name = path.rpartition("/")
            there = {*store.sizes(place)} if name == WHOLE else {name}
            local = os.path.join(folder, name)
        known = {os.path.basename(local), *FILES, _CHAT_TEMPLATE}
        for name in there:
            beside, _, _ = name.rpartition("/")
            if name in known or beside == _MORE_TEMPLATES:
                to = os.path.join(folder, beside)
                os.makedirs(to, exist_ok=True)
                store.local_copy(os.path.join(place, name), to)
        try:
            files = read_tokenizer_files(local)
            parsed = files.parse()  # while the files are here
            return replace(files, parse=lambda: parsed, place=path)
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
        return _make_bpe(config) or Tokenizer.from_buffer(data), config


def _make_bpe(config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a BPE, in half the time in which `tokenizers` parses it again.

    It is None for other models, and for files that `tokenizers` may reject.
    """
    with contextlib.suppress(Exception):
        model = config["model"]
        rest = {**config, "added_tokens": [], "model": {**model, "vocab": {}, "merges": []}}
        options = {name: model[name] for name in _BPE_OPTIONS if model.get(name) is not None}
        if model["type"] == "BPE" and {*map(type, model["merges"])} == {list}:
            tokenizer = Tokenizer.from_str(json.dumps(rest))
            pairs = [*map(tuple, model["merges"])]
            tokenizer.model = models.BPE(vocab=model["vocab"], merges=pairs, **options)
            for is_special, tokens in groupby(config["added_tokens"], itemgetter("special")):
                add = tokenizer.add_special_tokens if is_special else tokenizer.add_tokens
                add([AddedToken(**{name: t[name] for name in _TOKEN_FIELDS}) for t in tokens])
            return tokenizer
    return None


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
        with store.open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _read_beside(directory: str) -> dict[str, Any]:
    """Values from the other files of the directory, by field of TokenizerFiles."""
    config = read_object(directory, TOKENIZER_CONFIG)
    return {
        "named": _named_roles(directory),
        "chat_templates": _chat_templates(directory),
        "settings": {name: config[name] for name in _KEPT if name in config},
    }


def _named_roles(directory: str) -> dict[str, str]:
    """Role to token."""
    tokens = named_settings(directory)
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
    value = read_object(directory, TOKENIZER_CONFIG).get("chat_template")
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
            f"the directory, or pass it as {flag('chat_template')}"
        )
