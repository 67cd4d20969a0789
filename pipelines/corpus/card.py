"""README.md of a corpus: the dataset card, from which `datasets` learns what to read."""

import os
import re

from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.format.corpus_metadata import (
    CARD,
    DOCUMENTS,
    FORMATS,
    CorpusSchema,
    CorpusStatistics,
)

_TEXT = """\
---
configs:
- config_name: default
  data_files: {files}
---

{documents} documents, {words} words, {bytes} bytes.
Written by Textmill {version} (fingerprint {fingerprint}).
report.html shows how the corpus was built; stats.json has all counts.
"""
_ANY = re.compile(re.sub(r"\\{\w+\\}", ".*", re.escape(_TEXT)).encode())
_CARD_BYTES = 1 << 20  # read of a README.md; a card is shorter


def card_file(output: str, schema: CorpusSchema, statistics: CorpusStatistics) -> dict[str, bytes]:
    """README.md and its content; {} if the directory has one that a person wrote or edited."""
    path = os.path.join(output, CARD)
    try:
        is_free = not store.exists(path) or is_unedited(store.read(path, 0, _CARD_BYTES))
    except DataError:  # a pipe, for example
        is_free = False
    return {CARD: _dataset_card(schema, statistics)} if is_free else {}


def is_unedited(card: bytes) -> bool:
    """Whether a README.md is the card of a corpus, as `card_file` wrote it."""
    return _ANY.fullmatch(card) is not None


def _dataset_card(schema: CorpusSchema, statistics: CorpusStatistics) -> bytes:
    """README.md: the files that `datasets.load_dataset` reads, and their content."""
    total = statistics.total()
    return _TEXT.format(
        files=f"{DOCUMENTS}-*.{FORMATS[schema.file_format]}",
        documents=f"{total.documents:,}",
        words=f"{total.words:,}",
        bytes=f"{total.text_bytes:,}",
        version=schema.code_version,
        fingerprint=schema.fingerprint[:12],
    ).encode()
