"""Ids and merges of `tokenizers`, kept, so that exactness does not depend on an old package.

    python -m tests.golden.encoded        # replaces encoded.json.xz; takes `tokenizers` 0.23.3

The file has for each tokenizer of a family its tokenizer.json, hard texts, and their ids; for each
published vocabulary the texts and ids; and for each splitting pattern the merges that the trainer
of `tokenizers` finds in the documents of `inputs`. Nothing here changes unless texts or tokenizers
are added.
"""

import json
import lzma
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Tokenizer

from tests.pipelines.tokenizer.test_trained_vocabularies import MORE_LINES, trained_by_tokenizers
from tests.stress.fuzz_encoding import draw_texts, small_tokenizer
from tests.tools.published_tokenizers import PUBLISHED, write_published
from tests.tools.tokenizer_factory import TEXT, config_of
from tests.tools.tokenizer_families import FAMILIES
from textmill.pipelines.encoding.backends import GOLDEN_TEXTS
from textmill.pipelines.encoding.patterns import PATTERNS

HERE = Path(__file__).parent
KEPT = HERE / "encoded.json.xz"
VERSION = "0.23.3"
VOCAB_SIZE = 700
_DRAWN = 80  # texts for each tokenizer


@dataclass(frozen=True)
class Encoded:
    """What `tokenizers` makes of texts.

    Attributes:
      texts: those that every dataset records, and drawn ones, with the tokenizer's added tokens.
      ids: of each text, without the special tokens of the post-processor.
      config: the tokenizer.json; of a published vocabulary {}.
    """

    texts: Sequence[str]
    ids: Sequence[Sequence[int]]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """The content of encoded.json.xz.

    Attributes:
      version: of `tokenizers`.
      families: by name.
      published: by name.
      documents: that were trained on.
      merges: by name of the splitting pattern.
    """

    version: str
    families: Mapping[str, Encoded]
    published: Mapping[str, Encoded]
    documents: Sequence[str]
    merges: Mapping[str, Sequence[Sequence[str]]]


def read_kept() -> Kept:
    """Reads the file."""
    content: dict[str, Any] = json.loads(lzma.decompress(KEPT.read_bytes()))
    for part in ("families", "published"):
        content[part] = {name: Encoded(**encoded) for name, encoded in content[part].items()}
    return Kept(**content)


def encode(tokenizer: Tokenizer, **more: Any) -> Encoded:
    """Hard texts and their ids."""
    texts = [*GOLDEN_TEXTS, *islice(draw_texts(tokenizer, 45), _DRAWN)]
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return Encoded(texts, [encoding.ids for encoding in encodings], **more)


def make() -> Kept:
    """Everything anew."""
    small = {name: small_tokenizer(name) for name in FAMILIES}
    families = {n: encode(tokenizer, config=config_of(tokenizer)) for n, tokenizer in small.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        published = {
            name: encode(Tokenizer.from_file(str(write_published(name, path))))
            for name in PUBLISHED
        }
    lines = (HERE / "inputs" / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [*(json.loads(line)["text"] for line in lines), *TEXT, MORE_LINES]
    merges = {
        name: trained_by_tokenizers(documents, VOCAB_SIZE, pattern=name)["model"]["merges"]
        for name in PATTERNS
    }
    return Kept(VERSION, families, published, documents, merges)


def main() -> None:
    """Writes the file."""
    assert tokenizers.__version__ == VERSION, tokenizers.__version__
    data = json.dumps(asdict(make()), ensure_ascii=False, separators=(",", ":")).encode()
    KEPT.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{KEPT}: {KEPT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
