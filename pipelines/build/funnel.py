"""What was left out before and in a shard, by reason: sizes and samples. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pipelines.build.route_examples import text_bytes, texts_of, tokenize
from pipelines.corpus.filter_documents import Filtered
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.host.arrow import pc
from pipelines.inspection.row_text import TokenTexts
from pipelines.rows.example_batch import ExampleBatch, LeftOut
from pipelines.tasks.task import Task
from schemas.drops import DROPS, LONGEST, SAMPLES, Funnel, Removed, Sample, shorten
from schemas.features import token_dtype
from schemas.sidecar import Schema

_LONGEST_CHARACTER = 4  # bytes, of which a token has one at least
_OF_SHARD = ("duplicates", *DROPS)  # by `LeftOut.reason_N`


def filtered_funnel(
    filtered: Filtered, task: Task, tokenizer: LoadedTokenizer, schema: Schema, split: str
) -> Funnel:
    """What filters dropped and edited; what they dropped is tokenized as the kept ones are."""
    before, after = filtered.given, filtered.documents.columns
    edited = int(text_bytes(before, task).sum() - text_bytes(after, task).sum())
    if not filtered.reasons:
        return Funnel(text_bytes=edited, edited_bytes=edited)
    columns = before.take(pa.array(list(filtered.reasons), pa.int64()))
    documents = replace(filtered.documents, columns=columns)
    made = tokenize(documents, task, tokenizer, schema, split)
    tokens_E = made.whole.tokens(token_dtype(schema.vocab_size))
    tokens = np.bincount(made.made.document_E, tokens_E, len(columns)).astype(np.int64)
    sizes = np.ones(len(columns), np.int64), text_bytes(columns, task), tokens
    names, code_N = np.unique(list(filtered.reasons.values()), return_inverse=True)
    texts = [columns[name] for name in texts_of(task)]

    def excerpt(place: int) -> str:
        cut = pc.utf8_slice_codeunits
        return "\n".join(cut(text.slice(place, 1), 0, LONGEST + 1)[0].as_py() for text in texts)

    removed = _by_reason(names.tolist(), code_N, made.digests, sizes, excerpt)
    edited -= int(sizes[1].sum())
    given = len(columns), int(sizes[1].sum()) + edited, int(tokens.sum())
    return Funnel(*given, edited, removed)


def shard_funnel(
    examples: ExampleBatch,
    left_out: LeftOut,
    schema: Schema,
    texts: TokenTexts,
) -> Funnel:
    """What a shard leaves out: repeats, and what is marked.

    Args:
      examples: that came for it.
      left_out: of them, as `keep` tells.
      schema: the contract.
      texts: of the tokenizer.
    """
    id_dtype, place, number = token_dtype(schema.vocab_size), left_out.example_N, left_out.number_N
    sizes = [number * size[place] for size in examples.sizes(id_dtype)]

    def excerpt(entry: int) -> str:
        one = examples.slice(int(place[entry]), int(place[entry]) + 1)
        ids = one.ragged("ids", id_dtype)[0][: _LONGEST_CHARACTER * (LONGEST + 1)]
        return texts.text(ids.tolist())

    digests = np.stack(examples.digests(), axis=1)[place].astype(">u8").view(np.uint8)
    removed = _by_reason(_OF_SHARD, left_out.reason_N, digests, sizes, excerpt)
    return Funnel(removed=removed)


def _by_reason(
    names: Sequence[str],
    code_N: np.ndarray,
    digests: np.ndarray,
    sizes: Sequence[np.ndarray],
    excerpt: Callable[[int], str],
) -> dict[str, Removed]:
    """Adds up documents by reason, and takes samples of each.

    Args:
      names: of reasons, by code.
      code_N: the reason of each of N entries; a document may have several, one after another.
      digests: uint8 [N, 16].
      sizes: documents, bytes and tokens of each entry: int64 [N] each.
      excerpt: gives the beginning of the document that begins at an entry.
    """
    high, low = np.ascontiguousarray(digests).view(">u8").T.astype(np.uint64)
    removed = {}
    for code in np.unique(code_N).tolist():
        own = np.flatnonzero(code_N == code)
        own = own[np.lexsort((low[own], high[own]))]
        is_new = np.ones(len(own), bool)
        is_new[1:] = (np.diff(high[own]) != 0) | (np.diff(low[own]) != 0)
        samples = tuple(
            Sample(digests[entry].tobytes().hex(), shorten(excerpt(entry)))
            for entry in own[is_new][:SAMPLES].tolist()
        )
        removed[names[code]] = Removed(*(int(size[own].sum()) for size in sizes), samples=samples)
    return removed
