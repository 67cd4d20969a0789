"""Tables of a dataset's counts for a terminal."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from textmill.pipelines.inspection.row_text import TokenTexts
from textmill.pipelines.runners.console import bars_table, columns_table, facts_table
from textmill.schemas.commands.terminal import number_of, visible
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.drops import REJECTED, describe_dropped
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import ShardStatistics, Statistics

_LISTED = 20  # classes, tokens


def set_tables(info: DatasetInfo) -> list[RenderableType]:
    """Returns the tables: schema, documents, splits, lengths, and classes if there are any."""
    titled = {
        info.directory: _schema(info),
        "documents": _documents(info.stats),
        "splits": _splits(info.stats, info.schema),
        "tokens of a document": _lengths(info.stats.total()),
    }
    if info.stats.total().labels:
        titled["classes"] = labels_table(info.stats)
    return _one_below_another(titled)


def token_tables(counts: np.ndarray, texts: TokenTexts) -> list[RenderableType]:
    """Returns tables of the most and the least frequent tokens; counts is int64 [vocab_size]."""
    order = np.lexsort((np.arange(len(counts)), -counts))
    used = int(np.count_nonzero(counts))
    frequent = order[: min(_LISTED, used)].tolist()
    rare = order[max(used - _LISTED, len(frequent)) : used][::-1].tolist()
    summary = columns_table()
    summary.add_row(f"{used:,} of {len(counts):,} ids occur, {(counts == 1).sum():,} once")
    titled = {"tokens": summary, "most frequent": _tokens(counts, frequent, texts)}
    if rare:
        titled["least frequent"] = _tokens(counts, rare, texts)
    return ["", *_one_below_another(titled)]


def _one_below_another(titled: Mapping[str, Table]) -> list[RenderableType]:
    shown: list[RenderableType] = []
    for title, own in titled.items():
        shown += [*([""] if shown else []), Text(title, "bold"), own]
    return shown


def _schema(info: DatasetInfo) -> Table:
    schema = info.schema
    masking = "none; rows are unmasked"
    if schema.static_masking:
        words = {"token": "", "word": "whole words, ", "span": "spans, "}[schema.mask_unit]
        masking = (
            f"static, {words}{schema.mask_rate:g} of the tokens, at most {schema.max_masked} a "
            f"row, {number_of(schema.mask_copies, 'copy', 'copies')}"
            + " of training rows"
            * (schema.mask_copies > 1)
        )
    rows = (
        "tokenized documents" if schema.holds_documents else f"rows of {schema.max_length} tokens"
    )
    facts = {
        "task": f"{schema.task}, {rows}",
        "vocabulary": f"{schema.vocab_size:,} ids; "
        + ", ".join(f"{role} {i}" for role, i in schema.special_ids.items()),
        "packing": schema.packing,
        "masking": masking,
        "seed": str(schema.seed),
        "files": schema.describe_files(),
        "inputs": f"{number_of(len(info.inputs.files), 'file')}, "
        + decimal(sum(file.bytes for file in info.inputs.files)),
        "size": decimal(sum(file.bytes for file in info.manifest.files)),
        "written by": f"Textmill {schema.code_version}",
        "fingerprint": schema.fingerprint,
    }
    for feature in schema.features if schema.holds_documents else schema.codec().features:
        facts[feature.name] = f"{feature.dtype}{list(feature.shape)}: {feature.meaning}"
    return facts_table(facts, boxed=False)


def _documents(stats: Statistics) -> Table:
    total = stats.total()
    facts = {
        "read": f"{stats.documents_read:,} of {decimal(stats.source_bytes)}",
        "kept": f"{total.documents:,} of {decimal(total.text_bytes)}",
        **describe_dropped(stats.all_dropped(), ("duplicates", REJECTED)),
    }
    return facts_table(facts, boxed=False)


# Lines that are omitted if all splits have 0.
_OPTIONAL = ("words", "tokens_truncated", "tokens_repeated", "masked", "trained")


def _splits(stats: Statistics, schema: Schema) -> Table:
    splits = {**stats.splits(), "all": stats.total()}
    own = columns_table("", *splits, justify="right")
    shards = {**schema.shards, "all": sum(schema.shards.values())}
    own.add_row("shards", *(f"{shards[name]:,}" for name in splits))
    for label, name in {
        "documents": "documents",
        "words": "words",
        "tokens of text": "tokens",
        "special tokens": "specials_added",
        "truncated": "tokens_truncated",
        "overlapping": "tokens_repeated",
        "rows": "rows",
        "segments": "segments",
        "tokens in rows": "tokens_in_rows",
        "masked": "masked",
        "trained on": "trained",
    }.items():
        counts = [getattr(split, name) for split in splits.values()]
        if any(counts) or name not in _OPTIONAL:
            own.add_row(label, *(f"{count:,}" for count in counts))
    if schema.row_tokens:
        shares = (counts.packing_efficiency(schema.row_tokens) for counts in splits.values())
        own.add_row("packing efficiency", *(f"{share:.2%}" for share in shares))
    return own


def length_bins(histogram: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yields the bins between the first and last that has documents, with smallest and largest."""
    used = [bin_ for bin_, count in enumerate(histogram) if count]
    for bin_ in range(used[0], used[-1] + 1) if used else ():
        yield bin_, (1 << bin_) >> 1, max((1 << bin_) - 1, 0)


def _lengths(total: ShardStatistics) -> Table:
    """Documents by length in tokens (1, 2-3, 4-7, 8-15 ...) and their share of all tokens."""
    return bars_table(
        (
            f"{low:,}" if low >= high else f"{low:,}-{high:,}",
            total.length_histogram[bin_],
            f"{total.length_tokens[bin_] / max(total.tokens, 1):.1%} of all tokens",
        )
        for bin_, low, high in length_bins(total.length_histogram)
    )


def labels_table(stats: Statistics) -> Table:
    """Documents of each class by split, with its share of the split."""
    splits = {**stats.splits(), "all": stats.total()}
    own = columns_table("", *splits, justify="right")
    labels = sorted(splits["all"].labels.items(), key=lambda item: (-item[1], item[0]))
    for label, _ in labels[:_LISTED]:
        cells = []
        for split in splits.values():
            count = split.labels.get(label, 0)
            cells.append(f"{count:,} ({count / max(split.documents, 1):.1%})")
        own.add_row(Text(visible(label)), *cells)
    if len(labels) > _LISTED:
        own.add_row(f"and {len(labels) - _LISTED:,} more")
    return own


def _tokens(counts: np.ndarray, ids: list[int], texts: TokenTexts) -> Table:
    return bars_table((f"{i} '{texts.text([i])}'", int(counts[i]), "") for i in ids)
