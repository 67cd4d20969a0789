"""The choice of a backend for a tokenizer.

`tokenizers` is the reference and takes every tokenizer. gigatoken, which takes byte-level BPE that
splits in a known way, and the word table, which takes the types of `tokenizer_types.py`, are tens
of times as fast. A fast backend is used only if it gives the ids of `tokenizers` for hard strings
when it loads.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.reference import (
    Backend,
    ReferenceBackend,
    Tokenizer,
    encode_each,
    failures_as_data_errors,
)
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import DataError

# They import numba, which a process that only inspects a tokenizer does not need.
_make_backend = import_later("textmill.pipelines.encoding.tokenizer_types:make_backend")
with_gigatoken = import_later("textmill.pipelines.encoding.gigatoken_engine:with_gigatoken")

_log = logging.getLogger(__name__)
_log.setLevel(logging.WARNING)  # the root level is above warnings while Beam runs
# These never change: every dataset records their ids, and `verify` rejects one with other texts.
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


def choose_backend(
    tokenizer: Tokenizer,
    config: Mapping[str, Any],
    data: bytes,
    place: str,
    *,
    is_kept: bool = False,
) -> tuple[Backend, str]:
    """Chooses a fast backend if one takes the tokenizer and gives the ids of `tokenizers` at load.

    Args:
      tokenizer: a tokenizer without truncation and padding.
      config: its tokenizer.json, as `tokenizers` writes it.
      data: the same in bytes.
      place: the name of the tokenizer in the warning that ids differ.
      is_kept: whether to choose among the backends that can be kept on disk.

    Returns:
      The backend, and why it is `tokenizers` ("" for a fast backend).
    """
    reference = ReferenceBackend(tokenizer)
    try:
        with failures_as_data_errors("it cannot be loaded", "`tokenizers` needs none of it"):
            backend = _make_backend(config, tokenizer, data, is_kept=is_kept)
            if isinstance(backend, str):
                return reference, backend
            wrong = _find_difference(backend, tokenizer)
        if wrong is None:
            return backend, ""
    except DataError as error:
        wrong = str(error)
    _log.warning(
        "The fast backend is not used for %s: %s. `tokenizers` encodes instead: ids are exact, at "
        "about a thirtieth of the speed. Please report it.",
        place,
        wrong,
    )
    return reference, wrong


def _find_difference(fast: Backend, tokenizer: Tokenizer) -> str | None:
    """The first hard string for which the backends differ; some contain the added tokens."""
    texts = [*GOLDEN_TEXTS, *_HARD_TEXTS, *_texts_with_added_tokens(tokenizer)]
    actual = fast.encode(pa.array(texts, pa.large_string()))
    for text, ids, expected in zip(
        texts,
        np.split(actual.values, actual.offsets[1:-1]),
        encode_each(tokenizer, texts),
        strict=True,
    ):
        if ids.tolist() != expected:
            return f"it encodes {text!r} as {ids.tolist()}, `tokenizers` as {expected}"
    return None


def _texts_with_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    for token in added[:64]:
        yield f"{token}a{token} {token}\n {token}{token[:-1]}x{token[1:]}  {token} "
    yield "".join(added[:64])
    yield " ".join(added[:64])
