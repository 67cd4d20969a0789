"""Sections of report.html: what a set is, how it was made, where documents went. Pure."""

from typing import Any

from rich.filesize import decimal

from pipelines.inspection.report.command import build_command
from pipelines.inspection.report.content import LISTED, SetContent, most, percent, short
from pipelines.inspection.report.figures import compact, flow
from pipelines.readers.documents import Reject
from pipelines.tasks.task import task_class
from schemas.drops import BY_SHARD, drop_of


def overview(content: SetContent) -> dict[str, Any]:
    """What the set is, in a line and a few numbers."""
    schema, total = content.schema, content.total
    size = sum(file.bytes for file in content.files if file.split)
    rows = f"{total.rows:,} row{'s' * (total.rows != 1)} of {schema.max_length:,} tokens"
    if schema.holds_documents:
        rows = f"whole, as {' and '.join(schema.file_formats)}"
    documents = f"{total.documents:,} document{'s' * (total.documents != 1)}"
    shards = sum(schema.shards.values())
    filled = {"of the places filled": percent(total.density(schema.row_tokens))}
    tiles = {
        "documents": compact(total.documents, 3),
        "tokens of text": compact(total.tokens, 3),
        "rows": compact(total.rows, 3),
        **({} if schema.holds_documents else filled),
        "shards": compact(shards, 3),
        "on disk": decimal(size),
    }
    return {
        "task": task_class(schema.task).title,
        "sentence": f"{documents} {'' if schema.holds_documents else 'in '}{rows}",
        "tiles": tiles,
    }


def describe_making(content: SetContent) -> dict[str, Any]:
    """The command, the facts of the contract, the inputs, the features of a row."""
    schema, files = content.schema, content.inputs.files
    listed = [(file.path, decimal(file.bytes)) for file in files[:LISTED]]
    if len(files) > LISTED:
        rest = sum(file.bytes for file in files[LISTED:])
        listed.append((f"and {len(files) - LISTED:,} more", decimal(rest)))
    facts = {
        "written by": f"Textmill {schema.code_version}, format {schema.format_version}",
        "fingerprint": schema.fingerprint,
        "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256}",
        "encoded by": content.tokenizer.encoded_by,
        "special ids": ", ".join(
            f"{role} {i}"
            for role, i in sorted(schema.special_ids.items(), key=lambda item: item[::-1])
        ),
        "files": schema.describe_files(),
        "seed": str(schema.seed),
    }
    for name, value in sorted(schema.parameters.items())[: 2 * LISTED]:
        facts[name.replace("_", " ")] = short(_value(value))
    command, flags = build_command(content.config, schema)
    return {
        "command": command,
        "flags": flags,
        "facts": {name: value for name, value in facts.items() if value},
        "inputs": listed,
        "features": [
            (f.name, f"{f.dtype} {list(f.shape) if f.shape else ''}".strip(), f.meaning)
            for f in schema.features
        ],
    }


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        more = [f"… {len(value):,} in all"] if len(value) > LISTED else []
        return ", ".join([*map(str, value[:LISTED]), *more])
    return "" if value is None else str(value)


def trace_flows(content: SetContent) -> dict[str, Any]:
    """Where documents and tokens went: the conservation equations as flows."""
    total, splits = content.total, content.splits
    left = "documents read"
    kinds = {left: "ink", "padding": "grey"}
    links = []
    for number, (split, counts) in enumerate(splits.items()):
        kinds[split] = "blue" if number == 0 else "teal"
        links.append((left, split, counts.documents))
    for drop in BY_SHARD:
        kinds[drop.title] = drop.color
        links.append((left, drop.title, total.dropped.get(drop.name, 0)))
    for reason, count in most(content.statistics.dropped, 6):
        name = reason.replace("_", " ")
        kinds[name] = drop_of(reason).color
        links.append((left, name, count))
    return {
        "documents": flow(links, kinds),
        "tokens": flow(_token_links(content), _token_kinds(content)),
    }


def _token_kinds(content: SetContent) -> dict[str, str]:
    kinds = {"text": "ink", "special tokens": "violet", "repeated": "amber"}
    kinds |= {"masked copies": "grey", "truncated": "red"}
    for number, split in enumerate(content.splits):
        kinds[f"rows of {split}"] = "blue" if number == 0 else "teal"
    return kinds


def _token_links(content: SetContent) -> list[tuple[str, str, int]]:
    links = []
    copies = content.schema.mask_copies
    for source in ("text", "special tokens", "repeated", "masked copies"):
        for split, counts in content.splits.items():
            once = counts.tokens_in_rows // copies
            count = {
                # What was cut off was text.
                "text": counts.tokens - counts.tokens_truncated,
                "special tokens": counts.specials_added,
                "repeated": counts.tokens_repeated,
                "masked copies": once * (copies - 1),
            }[source]
            links.append((source, f"rows of {split}", count))
    links.append(("text", "truncated", content.total.tokens_truncated))
    return links


def rejects(content: SetContent) -> dict[str, Any] | None:
    """Documents that were not used, by reason, with the first of each that was kept on record."""
    dropped = content.statistics.dropped
    if not any(dropped.values()):
        return None
    first = content.rejects.first_of_reasons()
    read = content.statistics.documents_read
    return {
        "number": sum(dropped.values()),
        "read": read,
        "reasons": [
            (reason.replace("_", " "), count, count / read, _place(first.get(reason)))
            for reason, count in most(dropped, LISTED)
        ],
    }


def _place(reject: Reject | None) -> tuple[str, str] | None:
    if reject is None:
        return None
    place = "" if reject.offset is None else f" at {reject.offset:,}"
    return short(reject.path) + place, short(reject.detail)
