"""Which engine encodes for a tokenizer, and why not a faster one.

gigatoken is used for GPT-2's family, the word table for those it knows, each after it gave the same
ids as `tokenizers` for hard strings at load. Pure: numpy and pyarrow.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.encoding.byte_alphabet import byte_characters, spelt_bytes
from pipelines.encoding.engines import Engine, FastEngine, ReferenceEngine, encode_each
from pipelines.encoding.tokenizer_files import failures_as_data_errors
from schemas.errors import DataError

if TYPE_CHECKING:
    import tokenizers

_log = logging.getLogger(__name__)
_log.setLevel(logging.WARNING)  # its own: the root's is set above warnings while Beam runs
GOLDEN_TEXTS = (
    "Hello, world! It's 2024, isn't it?",
    "  two  spaces,\n\na tab\tand 3.14",
    "Blåbærsyltetøy på Ærø koster 17½ kr.",
    "Привет, мир: 中文字符 और हिन्दी 🙂",
)
_HARD_TEXTS = (
    "",
    " ",
    "   trailing   ",
    "\r\n\t\u00a0\u3000\u2028x\u0085\u200b\ufeff",
    "they'LL we'll 'tis ''s 'Ve I'm'd",
    "e\u0301\u0302 ǅ ʰ ² ½ Ⅷ ١٢٣ ก้ 한국어 \U0001f469\u200d\U0001f469 \ud7ff\ue000\uffff\U0010ffff",
    "a\0b _x__ --...!? 1a2b3c " + "x" * 300 + " " * 70 + "'s" * 40,
    "<s> <mask></s><unk>  <pad>\n<mask> [MASK] <|endoftext|>",
)


def why_not_gigatoken(config: Mapping[str, Any]) -> str | None:
    """Why the gigatoken may not be used for a tokenizer.json, or None if it may.

    `config` must be as `tokenizers` writes it (ids of added tokens resolved, merges distinct). Each
    condition was found by fuzzing or by reading, and most of them with a counterexample: see
    tests/pipelines/encoding/test_engines.py.
    """
    model, splitter = config["model"], config["pre_tokenizer"] or {}
    if model["type"] != "BPE":
        return f"its model is {model['type']}, not BPE"
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            return f"its model sets {option}"
    if config["normalizer"] is not None:
        return "it has a normalizer"
    if splitter.get("type") != "ByteLevel" or not splitter.get("use_regex", True):
        return "it does not split text as GPT-2 does"
    return _odd_added_tokens(config["added_tokens"]) or _odd_vocabulary(model["vocab"])


def _odd_added_tokens(added_tokens: Sequence[Mapping[str, Any]]) -> str | None:
    for token in added_tokens:
        if token["single_word"]:
            return f"added token {token['content']!r} is a single word"
        if any(character.isspace() for character in token["content"]):
            return f"added token {token['content']!r} holds white space"
    if len({token["normalized"] for token in added_tokens}) > 1:
        return "some of its added tokens are normalized and some are not"
    return None


def _odd_vocabulary(vocab: Mapping[str, int]) -> str | None:
    # A token with other characters stands for itself; it must not meet one that is written in them.
    spelt = set(spelt_bytes(vocab))
    if not vocab.keys() >= set(byte_characters()):
        return "its vocabulary lacks single bytes"
    if len(spelt) < len(vocab) or len(set(vocab.values())) < len(vocab):
        return "its vocabulary holds a token twice"
    return None


def choose_engine(
    tokenizer: "tokenizers.Tokenizer", config: Mapping[str, Any], place: str, *, parallel: bool
) -> tuple[Engine, str]:
    """A fast one, if the tokenizer is of a family and both give the same ids at load.

    Args:
      tokenizer: without truncation and padding.
      config: its tokenizer.json, as `tokenizers` writes it.
      place: what to call it in the warning that they do not.
      parallel: whether gigatoken may use all cores.

    Returns:
      The engine, and why it is not a faster one: nothing if it is one.
    """
    reference = ReferenceEngine(tokenizer)
    try:
        with failures_as_data_errors("it cannot be loaded", "`tokenizers` needs none of it"):
            engine = _make_fast(tokenizer, config, reference, parallel=parallel)
            if isinstance(engine, str):
                return reference, engine
            wrong = _find_difference(engine, tokenizer)
        if wrong is None:
            return engine, ""
    except DataError as error:
        wrong = str(error)
    _log.warning(
        "The fast engine is not used for %s: %s. Ids stay exact, by `tokenizers`, some thirty "
        "times slower; please report it.",
        place,
        wrong,
    )
    return reference, wrong


def _make_fast(
    tokenizer: "tokenizers.Tokenizer",
    config: Mapping[str, Any],
    reference: ReferenceEngine,
    *,
    parallel: bool,
) -> Engine | str:
    """A fast engine for a tokenizer, or why there is none."""
    if why_not_gigatoken(config) is None:
        return FastEngine(tokenizer.to_str().encode(), reference, parallel=parallel)
    # It loads numba, which who only looks at a tokenizer does without.
    from pipelines.encoding.families import make_engine

    return make_engine(config, tokenizer)


def _find_difference(fast: Engine, tokenizer: "tokenizers.Tokenizer") -> str | None:
    """Both engines on hard strings, also with this tokenizer's added tokens written in them."""
    texts = [*GOLDEN_TEXTS, *_HARD_TEXTS, *_texts_with_added_tokens(tokenizer)]
    found, _ = fast.encode(pa.array(texts, pa.large_string()))
    for text, ids, expected in zip(
        texts,
        np.split(found.values, found.offsets[1:-1]),
        encode_each(tokenizer, texts),
        strict=True,
    ):
        if ids.tolist() != expected:
            return f"it encodes {text!r} as {ids.tolist()}, `tokenizers` as {expected}"
    return None


def _texts_with_added_tokens(tokenizer: "tokenizers.Tokenizer") -> Iterator[str]:
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    for token in added[:64]:
        yield f"{token}a{token} {token}\n {token}{token[:-1]}x{token[1:]}  {token} "
    yield "".join(added[:64])
    yield " ".join(added[:64])
