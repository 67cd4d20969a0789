"""Checks the content of a tokenizer.json, and writes its tokenizer_config.json. Python 3.8 syntax.

`tokenizers` trusts its files: each bound here prevents a way to crash or hang the process that
reads one, or the process that trains with it. Published tokenizers are far below all bounds.

Regular expressions are tried in a `LimitedProcess`, unless their form guarantees short times for
any text, as with published patterns. The other bounds cannot be tried: ids, holes and long tokens
cost time and memory in training and encoding, and the output of a normalizer depends on the text.

tokenizer.json itself does not say which token is bos or eos: tokenizer_config.json does, as
`transformers` reads it.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from itertools import chain
from typing import Any, Iterator, Mapping

from textmill.schemas.commands.terminal import command_in_message
from textmill.schemas.errors import DataError
from textmill.schemas.limited_process import LimitedProcess, LimitExceeded
from textmill.schemas.typed_json import pause_collector

MOST_BYTES = 128 << 20  # of a file; the largest published one (Gemma 3) has 33 MB
MOST_IDS = 1 << 22  # four times the largest published vocabulary; a model has a row for each id
MOST_HOLES = 1 << 16  # ids below the largest without a token, whose rows are useless
LONGEST_TOKEN = 1 << 16  # characters of a token of the model
LONGEST_ADDED = 4096  # characters of an added token; 1 MB of near matches takes minutes to encode
MOST_ADDED_TEXT = 1 << 20  # characters of all added tokens, normalized; loading takes 1 to 4 s
LONGEST_TEXT = 8192  # characters of any other text, such as a pattern
LONGEST_AFFIX = 64  # characters of the prefix or suffix of pieces of a word
LONGEST_WORD = 1000  # characters of a word for WordPiece; it takes 0.1 s, and time is quadratic
MOST_STEPS = 256  # of a normalizer, pre-tokenizer, post-processor or decoder
MOST_GROWTH = 128.0  # characters that one may become, as far as the file shows; T5's: 36
MOST_PIECES = 64  # items of any list in a step, such as a template or its ids
MOST_TYPES = 256  # token types; rows store them in a byte
_STEPS_OF = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
_CHARACTER_MAP = "precompiled_charsmap"
TOKENIZER_CONFIG = "tokenizer_config.json"


def _remedy() -> str:
    return (
        "save it again with transformers, use another, or make your own with "
        f"{command_in_message('pipelines.train_tokenizer')}"
    )


@pause_collector()
def read_tokenizer_json(content: bytes, place: str) -> dict[str, Any]:
    """Parses a tokenizer.json, and checks that it is safe to pass it to `tokenizers`.

    `try_tokenizer` checks patterns, `resolve_ids` the ids that `tokenizers` assigns. A vocabulary
    of 50,000 takes 40 ms, nearly all of it for parsing.

    Args:
      content: the content of the file.
      place: the name of the file in errors.

    Raises:
      DataError: it is not JSON, or exceeds a bound.
    """
    check_size(len(content), place)
    try:
        config = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not a tokenizer: not JSON: {error}; {_remedy()}") from error
    try:
        _check_bounds(config)
    except (ValueError, RecursionError) as error:
        raise _describe_misfit(place, error) from error
    return config


def _describe_misfit(place: str, error: Exception) -> DataError:
    return DataError(f"{place} cannot be used as a tokenizer: {error}; {_remedy()}")


def check_size(size: int, place: str) -> None:
    """Checks the size of a file in bytes before it is read.

    Raises:
      DataError: it is larger than `MOST_BYTES`.
    """
    if size > MOST_BYTES:
        raise DataError(
            f"{place} has {size:,} bytes, but a tokenizer has at most {MOST_BYTES:,}: {_remedy()}"
        )


def check_vocabulary(vocab: Any, place: str) -> None:
    """Checks the vocabulary of a model, such as that of a vocab.json.

    Raises:
      DataError: it exceeds a bound.
    """
    try:
        _check_ids(_model_ids(vocab))
    except ValueError as error:
        raise _describe_misfit(place, error) from error


def resolve_ids(config: dict[str, Any], place: str) -> dict[str, int]:
    """All tokens and their ids: {"<s>": 0, ...}.

    Args:
      config: a tokenizer.json as `tokenizers` writes it, which may assign new ids to added tokens.
      place: the name of the file in errors.

    Raises:
      DataError: two tokens have one id, or a template adds an id that no token has.
    """
    try:
        ids = token_ids(config)
        if not ids:
            raise ValueError("its vocabulary is empty")
        _check_ids(ids)
        known = set(ids.values())
        for step in _steps(config.get("post_processor"), "post_processor"):
            _check_added_ids(step, known)
    except ValueError as error:
        raise _describe_misfit(place, error) from error
    return ids


def token_ids(config: dict[str, Any]) -> dict[str, int]:
    """All tokens and their ids, unchecked: those of the model, then added tokens.

    Raises:
      ValueError: a part has a wrong type.
    """
    ids = _model_ids(_expect(_expect(config, dict, "it").get("model"), dict, "model").get("vocab"))
    for added in _expect(config.get("added_tokens") or [], list, "added_tokens"):
        added = _expect(added, dict, "an added token")
        ids[_expect(added.get("content"), str, "an added token's content")] = added.get("id")
    return ids


def _check_bounds(config: Any) -> None:
    model = _expect(_expect(config, dict, "it").get("model"), dict, "model")
    _check_ids(_model_ids(model.get("vocab")))
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        affix = _expect(model.get(name) or "", str, name)
        _at_most(len(affix), LONGEST_AFFIX, f"characters of its {name}")
    longest = _expect(model.get("max_input_chars_per_word", 0), int, "max_input_chars_per_word")
    _at_most(longest, LONGEST_WORD, "for its max_input_chars_per_word")
    growth = normalized = 1.0  # characters that one may become
    for name in _STEPS_OF:
        growth = 1.0 if name == "decoder" else growth  # a decoder starts from tokens
        for number, step in enumerate(_steps(config.get(name), name)):
            _at_most(number + 1, MOST_STEPS, f"steps of its {name}")
            _check_sizes({k: v for k, v in step.items() if k != _STEPS_OF[name]}, f"its {name}")
            if name != "post_processor":  # a post-processor adds few
                growth *= _growth(step)
            _at_most(growth, MOST_GROWTH, f"characters from one, after the steps of its {name}")
        normalized = growth if name == "normalizer" else normalized
    _check_added_tokens(config.get("added_tokens") or [], normalized)


def _model_ids(vocab: Any) -> dict[str, int]:
    if isinstance(vocab, list):  # a Unigram model: a token and its score; the index is the id
        tokens = [_expect(v, list, "a piece")[0] if v else None for v in vocab]
        ids = {_expect(token, str, "a piece's token"): i for i, token in enumerate(tokens)}
        if len(ids) < len(tokens):
            twice = next(token for i, token in enumerate(tokens) if ids[token] != i)
            raise ValueError(f"its vocabulary has {twice!r:.80} twice")
    else:
        ids = dict(_expect(vocab, dict, "its vocabulary"))
    _at_most(max(map(len, ids), default=0), LONGEST_TOKEN, "characters of a token")
    return ids


def _check_ids(ids: dict[str, int]) -> None:
    """Checks that ids are integers within bounds, each of one token, with few holes."""
    if not set(map(type, ids.values())) <= {int}:
        token = next(token for token, i in ids.items() if type(i) is not int)
        raise ValueError(f"the id of {token!r:.80} is {ids[token]!r:.80}, not an integer")
    first, last = min(ids.values(), default=0), max(ids.values(), default=-1)
    if first < 0 or last >= MOST_IDS:
        wrong = first if first < 0 else last
        raise ValueError(f"one of its ids is {wrong:,}, not from 0 to {MOST_IDS - 1:,}")
    owner = {i: token for token, i in ids.items()}
    if len(owner) < len(ids):
        token, i = next((token, i) for token, i in ids.items() if owner[i] != token)
        raise ValueError(f"{token!r:.80} and {owner[i]!r:.80} have the same id, {i}")
    _at_most(last + 1 - len(ids), MOST_HOLES, f"ids without a token below its largest, {last:,}")


def _check_added_tokens(added_tokens: Any, growth: float) -> None:
    """Checks added tokens; the normalizer may turn one character into `growth`."""
    total = 0.0
    for added in _expect(added_tokens, list, "added_tokens"):
        content = _expect(_expect(added, dict, "an added token").get("content"), str, "its content")
        _at_most(len(content), LONGEST_ADDED, "characters of an added token")
        total += len(content) * (growth if added.get("normalized") else 1)
    _at_most(total, MOST_ADDED_TEXT, "characters of all its added tokens, as normalized")


def _steps(part: Any, name: str) -> Iterator[dict[str, Any]]:
    """A part of a tokenizer.json and, if it is a sequence, its parts."""
    if part is None:
        return
    yield _expect(part, dict, f"its {name}")
    for step in _expect(part.get(_STEPS_OF[name]) or [], list, f"the sequence of its {name}"):
        yield from _steps(step, name)


def _check_sizes(value: Any, name: str) -> None:
    if isinstance(value, str):
        _at_most(len(value), LONGEST_TEXT, f"characters of {name}")
    elif isinstance(value, list):
        _at_most(len(value), MOST_PIECES, f"parts of {name}")
        for item in value:
            _check_sizes(item, name)
    elif isinstance(value, dict):
        for key in value.keys() - {_CHARACTER_MAP}:
            _check_sizes(value[key], f"{key} in {name}")
    elif isinstance(value, int) and name.startswith("type_id"):
        _at_most(value, MOST_TYPES - 1, f"for a {name}")


def _growth(step: dict[str, Any]) -> float:
    """The most characters that a step makes of one, for texts that are not very short.

    Output is counted in NFKD, in which one character becomes at most 18; no other normalization
    form makes more of these.
    """
    if _CHARACTER_MAP in step:
        return _longest_in_map(_expect(step[_CHARACTER_MAP], str, _CHARACTER_MAP))
    if "prepend" in step:
        return 1 + _spelt_length(_expect(step["prepend"], str, "prepend")) / 2
    if "content" in step and "pattern" in step:
        content, pattern = _spelt_length(_expect(step["content"], str, "content")), step["pattern"]
        if isinstance(pattern, dict) and isinstance(pattern.get("String"), str):
            if pattern["String"]:
                return max(1.0, content / len(pattern["String"]))
        return 1.0 + content  # a regular expression may match between any two characters
    if "" in (step.get("suffix"), step.get("word_delimiter_token")):  # a space after each character
        return 2.0
    # A byte becomes a character; or each piece that an earlier step has cut gets a prefix.
    if step.get("type") == "ByteLevel" or {"replacement", "trim_offsets"} & step.keys():
        return 2.0
    return 1.0


def _spelt_length(text: str) -> int:
    return len(unicodedata.normalize("NFKD", text))


def _longest_in_map(encoded: str) -> float:
    """The longest text in the map of a SentencePiece normalizer: a trie, and zero-ended texts."""
    data = base64.b64decode(encoded, validate=True)
    texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
    return float(max(_spelt_length(text.decode("utf-8", "replace")) for text in texts)) or 1.0


def _check_added_ids(step: dict[str, Any], known: set[int]) -> None:
    """Checks that a post-processor adds only known ids, and uses each text once."""
    added = {name: value["ids"] for name, value in (step.get("special_tokens") or {}).items()}
    for name in ("cls", "sep"):  # of BertProcessing and RobertaProcessing
        if name in step:
            token, i = _expect(step[name], list, name)
            added[token] = [i]
    for name, ids in added.items():
        for i in ids:
            if type(i) is not int or i not in known:
                raise ValueError(
                    f"its post-processor adds id {i!r:.80} as {name!r:.80}, which no token has"
                )
    for name in ("single", "pair"):
        texts = [
            str(piece["Sequence"]["id"]) for piece in step.get(name) or () if "Sequence" in piece
        ]
        if len(set(texts)) < len(texts):
            raise ValueError(f"its template {name} uses a text twice")


def _expect(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{what} is {value!r:.80}, not of type {kind.__name__}")
    return value


def _at_most(value: float, bound: float, what: str) -> None:
    if value > bound:
        raise ValueError(f"{value:,.15g} {what}; at most {bound:,.15g} are allowed")


# Regular expressions: `tokenizers` has no time limit, and the time of `(a+)+$` doubles with each
# further `a`.

_TRIAL_SECONDS = 10
_MOST_REPEATS = 3  # in a sequence; each adds a power of the text's length to the time
_RUNS = (28, 2000)  # lengths of hard texts: for exponential and for polynomial time
_ESCAPE = re.compile(r"\\[pP]\{\^?\w+\}|\\.", re.DOTALL)
_CLASS = re.compile(r"\[[^\[\]]+\]")
_BACK_REFERENCE = re.compile(r"\\[1-9gkKRX]")
_DOUBTFUL = re.compile(
    r"\)[*+{]"  # a repeated group, which may contain repetitions and alternatives
    r"|[*+?}][*+{]"  # a repeated repetition
    r"|\(\?(?![imsa-]*[:=!>)]|<[=!])"  # an unusual kind of group
    r"|\{\d*,?\d{4,}|\["  # a large count; an unusual class
)
_TRY_PATTERNS = f"""
import json
from tokenizers import Regex, pre_tokenizers
def answer(data):
    for pattern in json.loads(data):
        characters = sorted({{*pattern[:200], *"a 1é中!\\n\\t"}})
        everything = "".join(characters)
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
            for character in characters:
                for run in {_RUNS}:
                    for end in ("", "\\0", "~" + everything):
                        split.pre_tokenize_str(character * run + end)
            split.pre_tokenize_str(everything * 40)
        except BaseException as error:  # a panic in Rust is not an Exception
            first = ascii(str(error).split("\\n")[0])[1:-1][:200]
            return (ascii(pattern)[:200] + " fails: " + first).encode()
    return b""
"""


def try_tokenizer(config: dict[str, Any], place: str) -> None:
    """Tries the regular expressions of a tokenizer.json that may backtrack catastrophically.

    Args:
      config: its content, from `read_tokenizer_json`.
      place: the name of the file in errors.

    Raises:
      DataError: a pattern fails, or takes too much time or memory.
    """
    steps = chain.from_iterable(_steps(config.get(name), name) for name in _STEPS_OF)
    patterns = (step.get("pattern") for step in steps)
    texts = {p["Regex"] for p in patterns if isinstance(p, dict) and "Regex" in p}
    if failure := failure_of_patterns(sorted(texts)):
        raise DataError(f"{place}: its pattern {failure}, or use another tokenizer")


def failure_of_patterns(patterns: list[str]) -> str | None:
    """Tries regular expressions on hard texts; returns the failure and the remedy, or None."""
    doubtful = [pattern for pattern in patterns if may_backtrack(pattern)]
    if not doubtful:
        return None
    child = LimitedProcess(_TRY_PATTERNS, seconds=_TRIAL_SECONDS)
    try:
        failure = child.ask(json.dumps(doubtful).encode()).decode()
    except LimitExceeded as error:
        failure = f"{' or '.join(doubtful)!r:.200} {error}"
    finally:
        child.close()
    return failure and (
        f"{failure}, for texts of {max(_RUNS):,} characters; write it without nested repetitions"
    )


def may_backtrack(pattern: str) -> bool:
    """Whether a regular expression may backtrack catastrophically, judged by its form.

    Expressions without repeated groups, back-references and many open repetitions are safe.
    """
    if _BACK_REFERENCE.search(pattern):
        return True
    bare, classes = _ESCAPE.sub("E", pattern), 1
    while classes:  # from the innermost, since classes may be nested
        bare, classes = _CLASS.subn("C", bare)
    rows = (
        choice.count("*") + choice.count("+") + choice.count(",}") for choice in bare.split("|")
    )
    return _DOUBTFUL.search(bare) is not None or max(rows) > _MOST_REPEATS


def tokenizer_settings(
    ids: Mapping[str, int], special_ids: Mapping[str, int], **others: Any
) -> dict[str, Any]:
    """The content of tokenizer_config.json: which token has which role, and `others`.

    {"bos": 0, "mask": 4, ...} of a schema -> {"bos_token": "<s>", "mask_token": "<mask>", ...}.
    `ids` are the ids of tokens, at least of those with a role.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **others,
        **_roles(ids, special_ids),
    }


def odd_settings(
    settings: Mapping[str, Any], ids: Mapping[str, int], special_ids: Mapping[str, int]
) -> Iterator[str]:
    """Roles of tokenizer_config.json that are not those of schema.json: "eos_token"."""
    due = _roles(ids, special_ids)
    given = {name for name in settings if name.endswith("_token") and name[:4] != "add_"}
    return (name for name in sorted(due.keys() | given) if settings.get(name) != due.get(name))


def _roles(ids: Mapping[str, int], special_ids: Mapping[str, int]) -> dict[str, str]:
    tokens = {number: token for token, number in ids.items()}
    roles = {f"{role}_token": tokens[number] for role, number in special_ids.items()}
    if "mask" in special_ids:  # an encoder's first and last token go by these names too
        named = {"cls_token": roles.get("bos_token"), "sep_token": roles.get("eos_token")}
        roles.update({name: token for name, token in named.items() if token is not None})
    return roles
