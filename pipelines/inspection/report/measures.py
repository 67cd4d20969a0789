"""Sections of report.html: lengths, packing, masks, classes. Pure."""

import math
from itertools import groupby
from typing import Any

import numpy as np

from pipelines.inspection.report.content import LISTED, SetContent, most
from pipelines.inspection.report.figures import Column, columns, compact
from pipelines.inspection.row_text import KEPT, RANDOM, REPLACED

_SHARD_BARS = 64


def lengths(content: SetContent) -> dict[str, Any] | None:
    """Documents by their number of tokens."""
    histogram = content.total.length_histogram
    used = [bin_ for bin_, count in enumerate(histogram) if count]
    if not used:
        return None
    bars = []
    cut = not content.schema.holds_documents
    for bin_ in range(used[0], used[-1] + 1):
        low, high = (1 << bin_) >> 1, max((1 << bin_) - 1, 0)
        short = str(low) if low < 100_000 else compact(low)
        label = short if low >= high else f"{short}–"
        span = f"{low:,}" if low >= high else f"{low:,} to {high:,}"
        count = histogram[bin_]
        # Documents in the bins above the one of L are longer than a row.
        kind = "amber" if cut and low > content.schema.max_length else "blue"
        bars.append((label, count, f"{count:,} documents of {span} tokens", kind))
    total = content.total
    return {
        "columns": columns(bars),
        "mean": total.tokens / total.documents,
        "longer": any(kind == "amber" for *_, kind in bars),
        "row": content.schema.max_length,
        "bytes_a_token": total.text_bytes / total.tokens if total.tokens else 0,
        "words": total.words,
    }


def packing(content: SetContent) -> dict[str, Any] | None:
    """What the places of rows hold, and how rows spread over shards."""
    schema = content.schema
    splits = []
    for split, counts in content.splits.items():
        places = counts.rows * schema.row_tokens
        if not places:
            continue
        special = counts.specials_added * schema.mask_copies
        parts = [
            ("text", "blue", (counts.tokens_in_rows - special) / places),
            ("special tokens", "violet", special / places),
            ("padding", "grey", 1 - counts.tokens_in_rows / places),
        ]
        splits.append((split, counts.rows, counts.segments / counts.rows, parts))
    if not splits:
        return None
    rows = [shard.rows for shard in content.statistics.shards.values()]
    return {
        "how": schema.packing,
        "splits": splits,
        "shards": _shard_columns(content),
        "fewest": min(rows),
        "most": max(rows),
        "mean": sum(rows) / len(rows),
        "number": len(rows),
    }


def _shard_columns(content: SetContent) -> tuple[Column, ...]:
    """A bar a shard; of many shards, a bar for several neighbours, as high as their mean."""
    shards = content.statistics.shards
    grouped = {
        split: list(group)
        for split, group in groupby(sorted(shards), key=lambda name: name.rsplit("-", 3)[0])
    }
    names = {split: grouped[split] for split in content.splits if split in grouped}
    together = math.ceil(len(shards) / _SHARD_BARS)
    bars = []
    for number, (split, own) in enumerate(names.items()):
        for start in range(0, len(own), together):
            rows = [shards[name].rows for name in own[start : start + together]]
            title = f"{own[start]}: {rows[0]:,} rows"
            if together > 1:
                last = start + len(rows) - 1
                title = (
                    f"{split}, shards {start:,} to {last:,}: {min(rows):,} to {max(rows):,} rows"
                )
            bars.append(("", sum(rows) / len(rows), title, "blue" if number == 0 else "teal"))
    return columns(bars)


def masks(content: SetContent) -> dict[str, Any] | None:
    """Mask rates as measured; None without static masks."""
    schema, masked = content.schema, content.total.masked
    if not schema.static_masking or not masked:
        return None
    bars = []
    if content.token_counts is not None:
        ordinary = np.ones(schema.vocab_size, bool)
        ordinary[list(schema.all_special_ids)] = False
        could = int(content.token_counts[ordinary].sum()) * schema.mask_copies
        parts = [("masked", "ink", masked / could), ("not masked", "grey", 1 - masked / could)]
        bars.append(("ordinary tokens", f"{could:,} in all rows", parts))
    became, rows = _masks_became(content)
    measured = sum(became.values())
    if measured:
        names = {
            REPLACED: ("the mask token", "ink"),
            RANDOM: ("a random token", "amber"),
            KEPT: ("kept as it was", "teal"),
        }
        parts = [(*names[kind], count / measured) for kind, count in became.items()]
        bars.append(("what they became", f"{measured:,} masks in the first {rows:,} rows", parts))
    return {
        "asked": schema.mask_rate,
        "unit": schema.mask_unit,
        "copies": schema.mask_copies,
        "bars": bars,
    }


def _masks_became(content: SetContent) -> tuple[dict[str, int], int]:
    """How many masks of the sampled rows are of each kind, and how many rows those are."""
    became: dict[str, int] = {REPLACED: 0, RANDOM: 0, KEPT: 0}
    rows = 0
    for sample in content.samples.values():
        row, slot = np.nonzero(sample["masked_weights"])
        now = sample["input_ids"][row, sample["masked_positions"][row, slot]]
        replaced = now == content.schema.special_ids["mask"]
        kept = (now == sample["masked_ids"][row, slot]) & ~replaced
        became[REPLACED] += int(replaced.sum())
        became[KEPT] += int(kept.sum())
        became[RANDOM] += int((~kept & ~replaced).sum())
        rows += len(sample["masked_weights"])
    return became, rows


def classes(content: SetContent) -> dict[str, Any] | None:
    """Documents of each class, in all and by split; None without classes."""
    labels = content.total.labels
    if not labels:
        return None
    splits = [split for split, counts in content.splits.items() if sum(counts.labels.values())]
    everything = sum(labels.values()) or 1
    highest = max(labels.values()) or 1
    listed = []
    for name, count in most(labels, LISTED + 1):
        shares = []
        for split in splits:
            own = content.splits[split].labels
            # "5 others" is no class: what is left of the whole.
            rest = sum(own.values()) - sum(own.get(known, 0) for known, *_ in listed)
            part = own[name] if name in own else (0 if name in labels else rest)
            shares.append(part / sum(own.values()))
        listed.append((name, count, count / everything, 100 * count / highest, shares))
    return {"classes": listed, "splits": splits, "number": len(labels)}
