"""The report of a dataset: its sections, and the numbers in them. Pure.

A section without parts is not on the page.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from rich.filesize import decimal

from textmill.pipelines.inspection.report.content import SetContent, splits_of
from textmill.pipelines.inspection.report.example_rows import examples
from textmill.pipelines.inspection.report.flow_and_zipf import Flow, flow, zipf
from textmill.pipelines.inspection.report.numbers import cut_text, largest, meter, percent, tile
from textmill.pipelines.inspection.report.page import render_page
from textmill.pipelines.inspection.report.parts import (
    CellTable,
    ColumnChart,
    Excerpts,
    Figure,
    Pair,
    ReportHead,
    Section,
    ShareBars,
    Shown,
)
from textmill.pipelines.inspection.report.shared_sections import (
    LISTED,
    flow_of_documents,
    length_columns,
    show_flows,
    show_making,
    show_rejects,
)
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import flag
from textmill.schemas.format.drops import BY_SHARD
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import Statistics

_TOKENS = 24  # most and least frequent ones that are listed
_SHARD_BARS = 64


def report_html(content: SetContent) -> bytes:
    """Renders the page of a dataset, as UTF-8."""
    return render_page(SECTIONS, content, content.schema.task)


def set_head(schema: Schema, statistics: Statistics, files: Sequence[ManifestFile]) -> ReportHead:
    """The dataset in one line and a few numbers."""
    total = statistics.total()
    made = f"in {number_of(total.rows, 'row')} of {schema.max_length:,} tokens"
    tiles = {
        "documents": tile(total.documents),
        "tokens of text": tile(total.tokens),
        "rows": tile(total.rows),
        "packing efficiency": percent(total.packing_efficiency(schema.row_tokens)),
        "shards": tile(sum(schema.shards.values())),
        "in shards": decimal(sum(file.bytes for file in files if file.is_shard)),
    }
    if schema.holds_documents:
        made = f"in {' and '.join(schema.file_formats)} files"
        del tiles["rows"], tiles["packing efficiency"]
    return ReportHead(
        f"dataset · {task_class(schema.task).title}",
        f"{number_of(total.documents, 'document')} {made}",
        tiles,
    )


def set_flow(schema: Schema, statistics: Statistics) -> Flow | None:
    """The flow of documents from the input to the splits, and to the reasons to drop them."""
    splits, total = splits_of(schema, statistics), statistics.total()
    return flow_of_documents(
        [(name, counts.documents, _color(name, splits)) for name, counts in splits.items()],
        [(drop.name, total.dropped.get(drop.name, 0)) for drop in BY_SHARD]
        + largest(statistics.dropped, 6),
    )


def overview(content: SetContent) -> Sequence[Shown]:
    """The head."""
    return (set_head(content.schema, content.statistics, content.files),)


def trace_flows(content: SetContent) -> Sequence[Shown]:
    """The conservation equations of documents and tokens, as flows."""
    total, splits, copies_of = content.total, content.splits, content.schema.copies_of
    sources = {
        "text": lambda counts, _: counts.tokens - counts.tokens_truncated,
        "special tokens": lambda counts, _: counts.specials_added,
        "repeated": lambda counts, _: counts.tokens_repeated,
        "masked copies": lambda counts, copies: counts.tokens_in_rows // copies * (copies - 1),
    }
    tokens = [
        (source, f"rows of {split}", count(counts, copies_of(split)))
        for source, count in sources.items()
        for split, counts in splits.items()
    ]
    tokens.append(("text", "truncated", total.tokens_truncated))  # only text is truncated
    colors = {"text": "ink", "special tokens": "violet", "repeated": "amber"}
    colors |= {"masked copies": "grey", "truncated": "red"}
    colors |= {f"rows of {split}": _color(split, splits) for split in splits}
    documents = set_flow(content.schema, content.statistics)
    return (show_flows({"Documents": documents, "Tokens": flow(tokens, colors)}),)


def describe_making(content: SetContent) -> Sequence[Shown]:
    """The command, the schema, the input files and the features of a row."""
    schema = content.schema
    roles = sorted(schema.special_ids.items(), key=lambda item: item[::-1])
    shards = ",".join(f"{split}:{count}" for split, count in sorted(schema.shards.items()))
    features = [
        (f.name, f.meaning, f"{f.dtype} {list(f.shape) if f.shape else ''}".strip())
        for f in schema.features
    ]
    return show_making(
        content,
        # The tokenizer and the number of shards of this dataset, whatever the machine.
        command=f"python -m pipelines.build_shards {flag('config', 'DIR/config.yaml')} "
        f"{flag('tokenizer', 'DIR/tokenizer.json')} {flag('num_shards', shards)} "
        f"{flag('output', 'NEW_DIR')}",
        left_out=("tokenizer:", "num_shards:"),
        facts={
            "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256}",
            "special ids": ", ".join(f"{role} {i}" for role, i in roles),
            "files": schema.describe_files(),
            "seed": str(schema.seed),
        },
        columns=Figure("A row", Excerpts(features)),
    )


def _color(split: str, splits: Iterable[str]) -> str:
    return "blue" if split == next(iter(splits)) else "teal"


def lengths(content: SetContent) -> Sequence[Shown]:
    """Documents, and their tokens, by the number of tokens in a document."""
    columns, shares = [], []
    cut, total, row = not content.schema.holds_documents, content.total, content.schema.max_length
    for bin_, low, label, documents, title in length_columns(
        total.length_histogram, "of {} tokens"
    ):
        tokens = total.length_tokens[bin_]
        # All documents in the bins above that of L are longer than a row.
        kind = "amber" if cut and low > row else "blue"
        title += f", {tokens / max(total.tokens, 1):.1%} of all tokens"
        columns.append((label, documents, title, kind))
        shares.append((label, tokens, title, kind))
    if not columns:
        return ()
    bytes_per_token = total.text_bytes / total.tokens if total.tokens else 0
    words = f"; the documents have {total.words:,} words" * bool(total.words)
    longer = f" Documents longer than a row of {row:,} tokens (amber) are cut into pieces." * (
        columns[-1][-1] == "amber"
    )
    unit = "tokens in a document, without special tokens"
    return (
        Figure(
            "Documents by length",
            ColumnChart(columns, room=100, has_edges=True),
            f"{unit}; a number is the lower bound of its bar",
        ),
        Figure(
            "Tokens by length of their document",
            ColumnChart(shares, room=100, has_edges=True),
            unit,
        ),
        f"A document has {total.tokens / total.documents:,.1f} tokens on average, a token "
        f"{bytes_per_token:.2f} bytes of text{words}.{longer}",
    )


def packing(content: SetContent) -> Sequence[Shown]:
    """Text, special tokens and padding in rows, and rows per shard."""
    schema, bars = content.schema, []
    for split, counts in content.splits.items():
        positions = counts.rows * schema.row_tokens
        if positions:
            special = counts.specials_added * schema.copies_of(split)
            parts = [
                ("text", "blue", (counts.tokens_in_rows - special) / positions),
                ("special tokens", "violet", special / positions),
                ("padding", "grey", 1 - counts.tokens_in_rows / positions),
            ]
            each = counts.segments / counts.rows
            bars.append((split, f"{counts.rows:,} rows, {each:.2f} segments each", parts))
    if not bars:
        return ()
    rows = [shard.rows for shard in content.statistics.shards.values()]
    shards = f"{number_of(len(rows), 'shard')}: {min(rows):,} to {max(rows):,} rows"
    return (
        f"Packed with {schema.packing}. Share of all positions in rows:",
        ShareBars(bars),
        Figure(
            "Rows per shard",
            ColumnChart(_shard_columns(content), is_slim=True),
            f"{shards}, {sum(rows) / len(rows):.1f} on average",
        ),
    )


def _shard_columns(content: SetContent) -> list[tuple[str, float, str, str]]:
    """One bar per shard; with many shards, one bar per group of neighbours, at their mean."""
    shards, columns = content.statistics.shards, []
    together = math.ceil(len(shards) / _SHARD_BARS)
    names = sorted(shards)
    of_split = {s: list(own) for s, own in groupby(names, key=lambda name: name.rsplit("-", 3)[0])}
    for split in filter(of_split.__contains__, content.splits):
        own = of_split[split]
        for start in range(0, len(own), together):
            rows = [shards[name].rows for name in own[start : start + together]]
            title = f"{own[start]}: {rows[0]:,} rows"
            if together > 1:
                numbers = f"{start:,} to {start + len(rows) - 1:,}"
                title = f"{split}, shards {numbers}: {min(rows):,} to {max(rows):,} rows"
            columns.append(("", sum(rows) / len(rows), title, _color(split, content.splits)))
    return columns


def masks(content: SetContent) -> Sequence[Shown]:
    """Mask rates as measured, with static masking."""
    schema, masked = content.schema, content.total.masked
    if not schema.static_masking or not masked:
        return ()
    bars = []
    if content.token_counts is not None:
        ordinary = np.delete(content.token_counts, list(schema.all_special_ids))
        # Counted in one copy of each row, and training splits may have more.
        in_rows = content.total.tokens_in_rows
        once = sum(n.tokens_in_rows // schema.copies_of(name) for name, n in content.splits.items())
        could = round(int(ordinary.sum()) * in_rows / once)
        about = "about " * (in_rows != once)
        parts = [("masked", "ink", masked / could), ("not masked", "grey", 1 - masked / could)]
        bars.append(("ordinary tokens", f"{about}{could:,} in all rows", parts))
    looks = ("the mask token", "ink"), ("a random token", "amber"), ("kept as it is", "teal")
    became = [_masks_became(sample, schema) for sample in content.samples.values()]
    rows, counts = sum(len(kinds) for kinds in became), np.zeros(3, np.int64)
    for kinds_BxK in became:
        counts += np.bincount(kinds_BxK.ravel(), minlength=4)[1:]
    if measured := int(counts.sum()):
        parts = [(*look, n / measured) for look, n in zip(looks, counts.tolist(), strict=True)]
        bars.append(
            ("masked tokens became", f"{measured:,} masks in the first {rows:,} rows", parts)
        )
    unit = {"token": "", "word": ", in whole words", "span": ", in spans of words"}
    copies = f", in {schema.mask_copies} copies of each training row with different masks"
    return (
        f"Requested: {percent(schema.mask_rate)} of the ordinary tokens of each row"
        f"{unit[schema.mask_unit]}{copies * (schema.mask_copies > 1)}. Measured:",
        ShareBars(bars),
    )


def _masks_became(sample: Mapping[str, np.ndarray], schema: Schema) -> np.ndarray:
    """uint8 [B, K]: 0 for an empty slot, 1 for the mask token, 2 for a random one, 3 for kept."""
    now = np.take_along_axis(sample["input_ids"], sample["masked_positions"].astype(np.int64), 1)
    kinds = np.where(now == sample["masked_ids"], 3, 2)
    kinds = np.where(now == schema.special_ids["mask"], 1, kinds)
    return np.where(sample["masked_weights"], kinds, 0)


def classes(content: SetContent) -> Sequence[Shown]:
    """Documents by class, in total and by split."""
    labels = content.total.labels
    if not labels:
        return ()
    every, highest = sum(labels.values()) or 1, max(labels.values())
    rows = [[n, c, c / every, meter(c, highest)] for n, c in largest(labels, LISTED + 1)]
    splits = {split: c.labels for split, c in content.splits.items() if sum(c.labels.values())}
    for own in splits.values():
        left = sum(own.values())
        for row in rows:
            # "5 others" is not a class: it has the remainder.
            count = own.get(row[0], 0) if row[0] in labels else left
            left -= count
            row.append(count / sum(own.values()))
    return (
        f"{number_of(len(labels), 'class', 'classes')}, most frequent first.",
        CellTable(rows, ("class", "documents", "share", "", *splits)),
    )


def tokens(content: SetContent) -> Sequence[Shown]:
    """Counts by rank, the most and the least frequent tokens, if they were counted."""
    counts = content.token_counts
    if counts is None or not counts.any():
        return ()
    every, once = int(counts.sum()), int((counts == 1).sum())
    order = np.lexsort((np.arange(len(counts)), -counts))
    used = int(np.count_nonzero(counts))
    ranked = np.cumsum(counts[order])
    special = set(content.schema.all_special_ids)

    def table(ids: Iterable[int], cells: int = 4) -> CellTable:
        highest = int(counts[order[0]])
        texts = {i: cut_text(content.texts.text([i])).replace(" ", "␣") for i in ids}
        rows = [(str(i), t, int(counts[i]), meter(counts[i], highest)) for i, t in texts.items()]
        return CellTable([row[:cells] for row in rows], look="tokens")

    ordinary = [i for i in order[: _TOKENS + len(special)].tolist() if i not in special]
    cover = ", ".join(
        f"{int(np.searchsorted(ranked, share * every)) + 1:,} ids make up {100 * share:.0f} %"
        for share in (0.5, 0.9, 0.99)
    )
    figures = [
        Figure("Most frequent", table(ordinary[:_TOKENS])),
        Figure("Least frequent", table(order[max(used - _TOKENS, 0) : used][::-1].tolist(), 3)),
    ]
    if in_rows := [i for i in sorted(special) if counts[i]]:
        figures.append(Figure("Special tokens", table(in_rows)))
    curve = zipf(counts)
    return (
        f"{used:,} of {len(counts):,} ids occur ({percent(used / len(counts))}), {once:,} of them "
        f"once; {len(counts) - used:,} never occur. The most frequent {cover} of all {every:,} "
        "tokens.",
        *([Figure("Count by rank", curve)] if curve else []),
        Pair(figures),
    )


def rejects(content: SetContent) -> Sequence[Shown]:
    """Rejected and filtered documents by reason, with the first one that rejects/ has of each."""
    counted = content.statistics
    return show_rejects(counted.dropped, counted.documents_read, content.rejects)


SECTIONS: tuple[Section, ...] = (
    ("", overview),
    ("Documents and tokens", trace_flows),
    ("First rows", examples),
    ("Lengths", lengths),
    ("Packing", packing),
    ("Masks, as measured", masks),
    ("Classes", classes),
    ("Tokens", tokens),
    ("Rejected and filtered documents", rejects),
    ("How to reproduce it", describe_making),
)
