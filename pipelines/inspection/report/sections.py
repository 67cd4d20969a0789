"""Computes the numbers of report.html's sections for the macros of sections.html.jinja. Pure.

A function returns None where the dataset has nothing for its section. Tables are rows of cells:
text, whole numbers, shares (float) and bars. A `Bar` is a list of (name, CSS class, share).
"""

import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import numpy as np
from rich.filesize import decimal

from textmill.pipelines.inspection.read_rows import sequences
from textmill.pipelines.inspection.report.content import (
    Bar,
    SetContent,
    compact,
    cut_text,
    flag_lines,
    largest,
    list_inputs,
    meter,
    percent,
    tile,
)
from textmill.pipelines.inspection.report.flow_and_zipf import flow, zipf
from textmill.pipelines.inspection.row_text import (
    KEPT,
    LOSS,
    PREFIX,
    RANDOM,
    REPLACED,
    Piece,
    row_facts,
    row_pieces,
)
from textmill.pipelines.inspection.set_tables import length_bins
from textmill.pipelines.readers.documents import Reject
from textmill.pipelines.tasks.task import task_class
from textmill.pipelines.writers.rejects import Rejects
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.format.drops import BY_SHARD, drop_of, spaced
from textmill.schemas.format.metadata import Schema

_LISTED = 20  # inputs, reasons, classes, parameters; the rest is one line
_TOKENS = 24  # most and least frequent ones that are listed
_SHARD_BARS = 64
_EXAMPLES = 3  # rows of each split
_EXAMPLE_TOKENS = 512  # shown of a row
_LOOKS = {LOSS: "loss", PREFIX: "prefix"}


def overview(content: SetContent) -> dict[str, Any]:
    """The dataset in one line and a few numbers."""
    schema, total = content.schema, content.total
    made = f"in {number_of(total.rows, 'row')} of {schema.max_length:,} tokens"
    tiles = {
        "documents": tile(total.documents),
        "tokens of text": tile(total.tokens),
        "rows": tile(total.rows),
        "packing efficiency": percent(total.packing_efficiency(schema.row_tokens)),
        "shards": tile(sum(schema.shards.values())),
        "in shards": decimal(sum(file.bytes for file in content.files if file.split)),
    }
    if schema.holds_documents:
        made = f"in {' and '.join(schema.file_formats)} files"
        del tiles["rows"], tiles["packing efficiency"]
    return {
        "kind": f"dataset · {task_class(schema.task).title}",
        "sentence": f"{number_of(total.documents, 'document')} {made}",
        "tiles": tiles,
    }


def describe_making(content: SetContent) -> dict[str, Any]:
    """The command, the schema, the input files and the features of a row."""
    schema = content.schema
    roles = sorted(schema.special_ids.items(), key=lambda item: item[::-1])
    facts = {
        "written by": f"Textmill {schema.code_version}, format {schema.format_version}",
        "fingerprint": schema.fingerprint,
        "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256}",
        "special ids": ", ".join(f"{role} {i}" for role, i in roles),
        "files": schema.describe_files(),
        "seed": str(schema.seed),
    }
    for name, value in sorted(schema.parameters.items())[: 2 * _LISTED]:
        facts[spaced(name)] = cut_text(_value(value))
    shards = ",".join(f"{split}:{count}" for split, count in sorted(schema.shards.items()))
    return {
        # The tokenizer and the number of shards of this dataset, whatever the machine.
        "command": "python -m pipelines.build_shards --config=DIR/config.yaml "
        f"--tokenizer=DIR/tokenizer.json --num_shards={shards} --output=NEW_DIR",
        "flags": flag_lines(content.config, "tokenizer:", "num_shards:"),
        "facts": {name: value for name, value in facts.items() if value},
        "inputs": list_inputs(content.inputs.files),
        "row": "A row",
        "features": [
            (f.name, f"{f.dtype} {list(f.shape) if f.shape else ''}".strip(), f.meaning)
            for f in schema.features
        ],
    }


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        more = [f"… {len(value):,} in all"] if len(value) > _LISTED else []
        return ", ".join([*map(str, value[:_LISTED]), *more])
    return "" if value is None else str(value)


def trace_flows(content: SetContent) -> dict[str, Any]:
    """The conservation equations of documents and tokens, as flows."""
    total, splits, copies_of = content.total, content.splits, content.schema.copies_of
    read, reasons = "read", largest(content.statistics.dropped, 6)
    documents = [(read, split, counts.documents) for split, counts in splits.items()]
    documents += [(read, drop.title, total.dropped.get(drop.name, 0)) for drop in BY_SHARD]
    documents += [(read, spaced(reason), count) for reason, count in reasons]
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
    colors = {split: _color(split, content) for split in splits}
    of_documents = {read: "ink", **colors, **{drop.title: drop.color for drop in BY_SHARD}}
    of_documents |= {spaced(reason): drop_of(reason).color for reason, _ in reasons}
    of_tokens = {"text": "ink", "special tokens": "violet", "repeated": "amber"}
    of_tokens |= {"masked copies": "grey", "truncated": "red"}
    of_tokens |= {f"rows of {split}": color for split, color in colors.items()}
    return {"Documents": flow(documents, of_documents), "Tokens": flow(tokens, of_tokens)}


def _color(split: str, content: SetContent) -> str:
    return "blue" if split == next(iter(content.splits)) else "teal"


def examples(content: SetContent) -> dict[str, Any] | None:
    """The first rows of each split."""
    rows, looks = [], set()
    for split in filter(content.samples.__contains__, content.splits):
        sample = content.samples[split]
        for number in range(min(_EXAMPLES, len(next(iter(sample.values()))))):
            row = {name: column[number] for name, column in sample.items()}
            streams = [_stream(content, row, name) for name in sequences(content.schema)]
            rows.append((split, number, row_facts(row, content.schema), streams))
            for stream in streams:
                spans = (span for _, spans in stream["segments"] for span in spans)
                looks.update(look for span in spans for look in span["look"].split())
    return {"rows": rows, "looks": looks} if rows else None


def _stream(content: SetContent, row: Mapping[str, np.ndarray], name: str) -> dict[str, Any]:
    """The first tokens of one sequence of a row: its segments, each a list of spans."""
    segments = sequences(content.schema)[name]
    segment_ids = row[segments]
    cut = np.where(np.arange(len(segment_ids)) < _EXAMPLE_TOKENS, segment_ids, 0)
    pieces = row_pieces({**row, segments: cut}, content.schema, content.texts, name)
    pieces = [piece for piece in pieces if piece.segment]
    tokens = int(np.count_nonzero(segment_ids))
    return {
        "name": name,
        "tokens": tokens,
        "padding": len(segment_ids) - tokens,
        "left_out": tokens - sum(piece.tokens for piece in pieces),
        "segments": [
            (segment, [_span(piece) for piece in group])
            for segment, group in groupby(pieces, key=lambda piece: piece.segment)
        ],
    }


def _span(piece: Piece) -> dict[str, str]:
    """A stretch of text of one look; the space before a masked word is no part of it."""
    titles = {
        REPLACED: f"“{piece.text}” became the mask token",
        RANDOM: f"“{piece.text}” became the random token “{piece.now}”",
        KEPT: f"“{piece.text}” is to be predicted, and was kept",
    }
    text = piece.text.lstrip(" ") if piece.kind in titles else piece.text
    return {
        "lead": piece.text[: len(piece.text) - len(text)],
        "text": text or "␣",
        "now": piece.now.strip(" ") if piece.kind == RANDOM else "",
        "look": " ".join([piece.kind, *(_LOOKS.get(mark, "marked") for mark in piece.marks)]),
        "title": titles.get(piece.kind, ""),
    }


def lengths(content: SetContent) -> dict[str, Any] | None:
    """Documents, and their tokens, by the number of tokens in a document."""
    columns, shares = [], []
    cut, total = not content.schema.holds_documents, content.total
    for bin_, low, high in length_bins(total.length_histogram):
        documents, tokens = total.length_histogram[bin_], total.length_tokens[bin_]
        label = f"{low:,}" if low < 10_000 else compact(low)
        span = f"{low:,}" if low >= high else f"{low:,} to {high:,}"
        # All documents in the bins above that of L are longer than a row.
        kind = "amber" if cut and low > content.schema.max_length else "blue"
        share = tokens / max(total.tokens, 1)
        title = f"{documents:,} documents of {span} tokens, {share:.1%} of all tokens"
        columns.append((label, documents, title, kind))
        shares.append((label, tokens, title, kind))
    if not columns:
        return None
    return {
        "columns": columns,
        "shares": shares,
        "mean": total.tokens / total.documents,
        "longer": columns[-1][-1] == "amber",
        "row": content.schema.max_length,
        "bytes_a_token": total.text_bytes / total.tokens if total.tokens else 0,
        "words": total.words,
    }


def packing(content: SetContent) -> dict[str, Any] | None:
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
        return None
    rows = [shard.rows for shard in content.statistics.shards.values()]
    shards = f"{number_of(len(rows), 'shard')}: {min(rows):,} to {max(rows):,} rows"
    return {
        "how": schema.packing,
        "bars": bars,
        "columns": _shard_columns(content),
        "shards": f"{shards}, {sum(rows) / len(rows):.1f} on average",
    }


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
            columns.append(("", sum(rows) / len(rows), title, _color(split, content)))
    return columns


def masks(content: SetContent) -> dict[str, Any] | None:
    """Mask rates as measured; None without static masking."""
    schema, masked = content.schema, content.total.masked
    if not schema.static_masking or not masked:
        return None
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
    return {
        "asked": schema.mask_rate,
        "unit": schema.mask_unit,
        "copies": schema.mask_copies,
        "bars": bars,
    }


def _masks_became(sample: Mapping[str, np.ndarray], schema: Schema) -> np.ndarray:
    """uint8 [B, K]: 0 for an empty slot, 1 for the mask token, 2 for a random one, 3 for kept."""
    now = np.take_along_axis(sample["input_ids"], sample["masked_positions"].astype(np.int64), 1)
    kinds = np.where(now == sample["masked_ids"], 3, 2)
    kinds = np.where(now == schema.special_ids["mask"], 1, kinds)
    return np.where(sample["masked_weights"], kinds, 0)


def classes(content: SetContent) -> dict[str, Any] | None:
    """Documents by class, in total and by split; None without classes."""
    labels = content.total.labels
    if not labels:
        return None
    every, highest = sum(labels.values()) or 1, max(labels.values())
    rows = [[n, c, c / every, meter(c, highest)] for n, c in largest(labels, _LISTED + 1)]
    splits = {split: c.labels for split, c in content.splits.items() if sum(c.labels.values())}
    for own in splits.values():
        left = sum(own.values())
        for row in rows:
            # "5 others" is not a class: it has the remainder.
            count = own.get(row[0], 0) if row[0] in labels else left
            left -= count
            row.append(count / sum(own.values()))
    return {"heads": ("class", "documents", "share", "", *splits), "rows": rows, "of": len(labels)}


def tokens(content: SetContent) -> dict[str, Any] | None:
    """Counts by rank, the most and the least frequent tokens; None if they were not counted."""
    counts = content.token_counts
    if counts is None or not counts.any():
        return None
    every = int(counts.sum())
    order = np.lexsort((np.arange(len(counts)), -counts))
    used = int(np.count_nonzero(counts))
    ranked = np.cumsum(counts[order])
    special = set(content.schema.all_special_ids)

    def rows(ids: Iterable[int]) -> list[tuple[str, str, int, Bar]]:
        highest = int(counts[order[0]])
        texts = {i: cut_text(content.texts.text([i])).replace(" ", "␣") for i in ids}
        return [(str(i), t, int(counts[i]), meter(counts[i], highest)) for i, t in texts.items()]

    ordinary = [i for i in order[: _TOKENS + len(special)].tolist() if i not in special]
    shares = (0.5, 0.9, 0.99)
    return {
        "curve": zipf(counts),
        "used": used,
        "vocabulary": len(counts),
        "every": every,
        "unused": len(counts) - used,
        "once": int((counts == 1).sum()),
        "cover": [(share, int(np.searchsorted(ranked, share * every)) + 1) for share in shares],
        "frequent": rows(ordinary[:_TOKENS]),
        "rare": [row[:-1] for row in rows(order[max(used - _TOKENS, 0) : used][::-1].tolist())],
        "special": rows(i for i in sorted(special) if counts[i]),
    }


def rejects(content: SetContent) -> dict[str, Any] | None:
    """Rejected and filtered documents by reason, with the first one that rejects/ has of each."""
    read = content.statistics.documents_read
    return rejects_of(content.statistics.dropped, read, content.rejects)


def rejects_of(dropped: Mapping[str, int], read: int, rejects: Rejects) -> dict[str, Any] | None:
    """The same from counts by reason, the number of documents read, and rejects/."""
    number, first = sum(dropped.values()), rejects.first_of_reasons()
    if not number:
        return None
    rows = [
        (spaced(reason), count, count / read, _describe(first.get(reason)))
        for reason, count in largest(dropped, _LISTED)
    ]
    shown = "the first" if any(row[-1] for row in rows) else ""
    return {"number": number, "read": read, "rows": rows, "first": shown}


def _describe(reject: Reject | None) -> str:
    if reject is None:
        return ""
    where = "" if reject.offset is None else f" at {reject.offset:,}"
    return f"{cut_text(reject.path)}{where}: {cut_text(reject.detail)}"
