"""README.md of a corpus: the dataset card, from which `datasets` learns what to read."""

import os

from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.format.corpus_metadata import (
    CARD,
    DOCUMENTS,
    FORMATS,
    CorpusSchema,
    CorpusStatistics,
)

_WRITER = "Written by Textmill"  # in README.md, unless it is a user's own
_CARD_BYTES = 1 << 20  # read of a README.md; a card is shorter


def card_file(output: str, schema: CorpusSchema, statistics: CorpusStatistics) -> dict[str, bytes]:
    """README.md and its content; {} if the directory has one that Textmill did not write."""
    path = os.path.join(output, CARD)
    try:
        is_own = not store.exists(path) or _WRITER.encode() in store.read(path, 0, _CARD_BYTES)
    except DataError:  # a pipe, for example
        is_own = False
    return {CARD: _dataset_card(schema, statistics)} if is_own else {}


def _dataset_card(schema: CorpusSchema, statistics: CorpusStatistics) -> bytes:
    """README.md: the files that `datasets.load_dataset` reads, and their content."""
    total = statistics.total()
    lines = (
        "---",
        "configs:",
        "- config_name: default",
        f"  data_files: {DOCUMENTS}-*.{FORMATS[schema.file_format]}",
        "---",
        "",
        f"{total.documents:,} documents, {total.words:,} words, {total.text_bytes:,} bytes.",
        f"{_WRITER} {schema.code_version} (fingerprint {schema.fingerprint[:12]}).",
        "report.html shows how the corpus was built; stats.json has all counts.",
    )
    return ("\n".join(lines) + "\n").encode()
