"""The formats of sets of whole documents (`--task=tokens`), which other projects' trainers read.

The one table of them; what a format looks like stands in its file in
`pipelines/writers/document_formats/`. Python 3.8 syntax.
"""

from typing import Dict, NamedTuple, Tuple


class DocumentFormat(NamedTuple):
    """A format.

    Attributes:
      endings: of the files that a shard has in it, the one that names it first.
      reader: what reads it.
    """

    endings: Tuple[str, ...]
    reader: str


# In the order in which our own readers prefer them: those that tell documents best come first.
DOCUMENT_FORMATS: Dict[str, DocumentFormat] = {
    "megatron": DocumentFormat(("megatron.bin", "megatron.idx"), "megatron-core's IndexedDataset"),
    "array_record": DocumentFormat(("array_record",), "grain"),
    "npy": DocumentFormat(("npy",), "numpy.memmap and ai2-olmo-core"),
    "llmc": DocumentFormat(("llmc.bin",), "llm.c and what reads its files"),
}
