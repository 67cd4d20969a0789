"""Ways to damage a finished dataset, and to correct what its other files state of the damaged one.

    chosen = Damage("train-00000-of-00002.tfrecord", "flip", "sums")
    damage(pristine, directory, chosen, random.Random(1))

Levels: `as is`; `sums`, where MANIFEST.json has the sizes, the sums and the digest of the files as
they are; `all`, where everything is right that follows from something else: fingerprints, sums of
stats.json, rows and the list of files. At `all`, rows change under CRCs and hashes that are right.
"""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.field_damage import FIELDS, add_up_statistics, change_field
from tests.tools.shard_factory import canonical_sha256, sign, write_rows
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.writers.document_formats import document_codec, open_documents
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo, read_dataset
from textmill.schemas.files.lock import LOCK
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.manifest import MANIFEST, ROW_DOCUMENTS
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.pieces import sum_pieces
from textmill.schemas.format.records import DOCUMENT_FORMATS, open_rows

LEVELS = ("as is", "sums", "all")
_GROWN = {"as is": 3_000_000_000, "sums": 200_000_000}  # bytes of a sparse file; sums take time
_FRAME = 16  # bytes around a TFRecord's data


@dataclass(frozen=True)
class Damage:
    """One damage of a dataset.

    Attributes:
      file: the file that is damaged.
      way: a key of BYTES, FILES, ROWS, DOCUMENTS or FIELDS.
      level: how much of the rest is corrected.
      path: of a field: ("files", 3, "rows").
    """

    file: str
    way: str
    level: str
    path: tuple[str | int, ...] = ()

    @property
    def kind(self) -> str:
        """The file's, for tables: shards of a format are one kind."""
        name = self.file.rsplit("/", 1)[-1]
        return "shard." + name.split(".", 1)[-1] if "-of-" in name else name

    @property
    def field(self) -> str:
        """`stats.json: shards.*.rows`: indices and names of shards are all one."""
        is_name = [isinstance(part, int) or "-of-" in part for part in self.path]
        parts = ["*" if many else part for many, part in zip(is_name, self.path, strict=True)]
        return f"{self.file}: {'.'.join(map(str, parts))}"


def format_of(name: str) -> str:
    """The format of tokenized documents that a file of a shard has.

    Raises:
      ValueError: no format has such files.
    """
    ending = name.split(".", 1)[1]
    [found] = [name for name, row in DOCUMENT_FORMATS.items() if ending in row.endings]
    return found


def documents_of(directory: Path, name: str, schema: Schema) -> Ragged:
    """The ids of the documents or pieces of a shard, in the format of one of its files."""
    first = DOCUMENT_FORMATS[format_of(name)].endings[0]
    path = f"{name.split('.', 1)[0]}.{first}"
    return open_documents(schema, path, lambda path: str(directory / path))


def read_rows(path: Path, schema: Schema) -> np.ndarray:
    """The rows of a shard: uint8 [B, stride].

    Raises:
      DataError: the file is not a shard of such rows.
    """
    with contextlib.closing(open_rows(str(path), schema.codec().stride)) as reader:
        return np.array(reader.read_range(0, len(reader)))


def choose(pristine: Path, draw: random.Random) -> Damage:
    """Any kind of file, as likely as any other; then a file of it, a level, a way."""
    info = read_dataset(str(pristine))
    kinds: dict[str, list[str]] = {MANIFEST: [MANIFEST]}
    for file in info.manifest.files:
        kinds.setdefault(Damage(file.path, "", "").kind, []).append(file.path)
    name = draw.choice(draw.choice(sorted(kinds.values())))
    level = "as is" if name == MANIFEST else draw.choice(LEVELS)
    return Damage(name, draw.choice(sorted(_ways(name, level, info.schema))), level)


def damage(pristine: Path, directory: Path, chosen: Damage, draw: random.Random) -> bool:
    """Copies a dataset and damages the copy; False if nothing changed, or no sums can be right."""
    shutil.copytree(pristine, directory)
    info = read_dataset(str(pristine))
    try:
        if chosen.way in FIELDS:
            change_field(directory / chosen.file, chosen.path, chosen.way, chosen.level)
        else:
            target = Target(directory, chosen.file, info, chosen.level, draw)
            _ways(chosen.file, chosen.level, info.schema)[chosen.way](target)
        if not _changed(pristine, directory):
            return False
        if chosen.level != "as is" and chosen.file != MANIFEST:
            _correct(directory, info.schema, everything=chosen.level == "all")
    except (DataError, ValueError):  # sums of what cannot be read
        return False
    return True


def _ways(name: str, level: str, schema: Schema) -> dict[str, Callable[["Target"], None]]:
    is_shard = Damage(name, "", "").kind.startswith("shard.") and not _is_beside(name)
    if level == "all" and is_shard:
        return DOCUMENTS if schema.holds_documents else ROWS
    return {**BYTES, **FILES}


def _is_beside(name: str) -> bool:
    """Whether a file holds the documents of a shard's rows."""
    return name.endswith("." + ROW_DOCUMENTS)


@dataclass(frozen=True)
class Target:
    """A file to damage, and what the ways need to know of its dataset."""

    directory: Path
    name: str
    info: DatasetInfo
    level: str
    draw: random.Random

    @property
    def path(self) -> Path:
        return self.directory / self.name

    def other(self) -> Path:
        """Another file of the dataset, of the same kind if there is one."""
        names = [file.path for file in self.info.manifest.files if file.path != self.name]
        same = [name for name in names if name.split(".", 1)[-1] == self.name.split(".", 1)[-1]]
        return self.directory / self.draw.choice(same or names)

    def items(self) -> list[np.ndarray]:
        """The rows of a shard as bytes, or the ids of each of its documents or pieces."""
        if not self.info.schema.holds_documents:
            return list(read_rows(self.path, self.info.schema))
        values, offsets = documents_of(self.directory, self.name, self.info.schema)
        return [values[a:b].copy() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]

    def write_items(self, items: list[np.ndarray]) -> None:
        """Writes the shard in the format of the file, under CRCs and hashes that are right."""
        schema = self.info.schema
        if not schema.holds_documents:
            write_rows(self.path, np.array(items or np.zeros((0, schema.codec().stride)), np.uint8))
            return
        held = np.concatenate([*items, np.zeros(0, token_dtype(schema.vocab_size))])
        ragged = Ragged.of(held, [len(document) for document in items])
        made = document_codec(format_of(self.name)).encode(ragged, schema)
        for ending, parts in made.items():
            content = b"".join(bytes(part) for part in parts)
            replaced = self.directory / f"{self.name.split('.', 1)[0]}.{ending}"
            replaced.unlink()  # its reader maps it
            replaced.write_bytes(content)


# Bytes of a file


def _block(target: Target, content: bytearray) -> tuple[int, int]:
    """Where a block begins and ends: in a TFRecord half of the time whole records."""
    draw, size = target.draw, len(content)
    if target.path.suffix == ".tfrecord" and draw.random() < 0.5:
        framed = target.info.schema.codec().stride + _FRAME
        first = draw.randrange(max(1, size // framed))
        return first * framed, (first + draw.randint(1, 3)) * framed
    start = draw.randrange(size + 1)
    return start, start + draw.choice((1, 8, 64, 512, 4096))


def _flip(target: Target, content: bytearray) -> None:
    for _ in range(target.draw.choice((1, 1, 2, 8)) if content else 0):
        content[target.draw.randrange(len(content))] ^= 1 << target.draw.randrange(8)


def _truncate(target: Target, content: bytearray) -> None:
    del content[_block(target, content)[0] :]


def _on_block(change: Callable[[random.Random, bytes], bytes]) -> Callable[["Target"], None]:
    def apply(target: Target, content: bytearray) -> None:
        start, stop = _block(target, content)
        content[start:stop] = change(target.draw, bytes(content[start:stop]))

    return _on_bytes(apply)


def _swap_chunks(target: Target, content: bytearray) -> None:
    start, stop = _block(target, content)
    length = len(content[start:stop])
    there = target.draw.randrange(len(content) - length + 1)
    if length and not start - length < there < stop:
        here, other = content[start:stop], content[there : there + length]
        content[start:stop], content[there : there + length] = other, here


def _append(target: Target, content: bytearray) -> None:
    content += target.draw.choice((b"\n", b"\0", b"\0" * 4096, bytes(content), b"{}", b"\xff"))


def _on_bytes(change: Callable[[Target, bytearray], None]) -> Callable[[Target], None]:
    def apply(target: Target) -> None:
        content = bytearray(target.path.read_bytes())
        change(target, content)
        target.path.write_bytes(content)

    return apply


# Files of the directory


def _swap_files(target: Target) -> None:
    other, spare = target.other(), target.directory / ".spare"
    target.path.rename(spare)
    other.rename(target.path)
    spare.rename(other)


def _copy_over(target: Target) -> None:
    shutil.copy(target.other(), target.path)


def _extra(target: Target) -> None:
    split, rest = target.draw.choice((("train", "99999-of-00002"), ("odd", "00000-of-00001")))
    shard = f"{split}-{rest}.{target.name.split('.', 1)[1]}"
    name = target.draw.choice((shard, "notes.txt", "red\x1b[31m\n.txt", "a/b/c", "\u202egpj.exe"))
    (target.directory / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target.path, target.directory / name)


def _link_to(place: Callable[[Target], str]) -> Callable[[Target], None]:
    def link(target: Target) -> None:
        to = place(target)
        target.path.unlink()
        target.path.symlink_to(to)

    return link


def _outside(target: Target) -> str:
    """A copy outside of the dataset."""
    to = target.directory.with_name(f"{target.directory.name}.outside")
    shutil.copy(target.path, to)
    return str(to)


def _folder(target: Target) -> None:
    target.path.unlink()
    target.path.mkdir()


def _pipe(target: Target) -> None:
    target.path.unlink()
    os.mkfifo(target.path)


def _grow(target: Target) -> None:
    os.truncate(target.path, _GROWN.get(target.level, 200_000_000))


# Rows or documents of a shard, under hashes that are right


def _on_items(
    change: Callable[[random.Random, list[np.ndarray]], object],
) -> Callable[[Target], None]:
    def apply(target: Target) -> None:
        items = target.items()
        if items:
            change(target.draw, items)
        target.write_items(items)

    return apply


def _flip_in_items(draw: random.Random, items: list[np.ndarray]) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        chosen = draw.choice(items)
        chosen[draw.randrange(len(chosen))] ^= 1 << draw.randrange(8)


def _zero_in_items(draw: random.Random, items: list[np.ndarray]) -> None:
    start = draw.randrange(len(items[0]))
    for item in items[draw.randrange(len(items)) :]:
        item[start : start + 64] = 0


def _copy_item_over(draw: random.Random, items: list[np.ndarray]) -> None:
    items[draw.randrange(len(items))] = draw.choice(items).copy()


def _swap_items(draw: random.Random, items: list[np.ndarray]) -> None:
    one, two = draw.randrange(len(items)), draw.randrange(len(items))
    items[one], items[two] = items[two], items[one]


def _drop_item(draw: random.Random, items: list[np.ndarray]) -> None:
    del items[draw.randrange(len(items))]


def _narrow_rows(draw: random.Random, rows: list[np.ndarray]) -> None:
    width = draw.randrange(1, len(rows[0]))
    rows[:] = [row[:width] for row in rows]


def _cut_document(draw: random.Random, documents: list[np.ndarray]) -> None:
    chosen = draw.randrange(len(documents))
    documents[chosen] = documents[chosen][draw.randrange(len(documents[chosen])) :]


def _merge_documents(draw: random.Random, documents: list[np.ndarray]) -> None:
    """Two become one: another index over the same ids."""
    chosen = draw.randrange(len(documents))
    documents[chosen : chosen + 2] = [np.concatenate(documents[chosen : chosen + 2])]


def _mix_shards(target: Target) -> None:
    """An item here and one of another shard change places."""
    other = replace(target, name=target.other().name)
    here, there = target.items(), other.items()
    one, two = target.draw.randrange(len(here)), target.draw.randrange(len(there))
    here[one], there[two] = there[two], here[one]
    target.write_items(here)
    other.write_items(there)


BYTES = {
    "flip": _on_bytes(_flip),
    "truncate": _on_bytes(_truncate),
    "insert": _on_block(lambda draw, block: draw.randbytes(draw.choice((1, 4, 40, 5000))) + block),
    "zero block": _on_block(lambda draw, block: bytes(len(block))),
    "cut out": _on_block(lambda draw, block: b""),
    "repeat block": _on_block(lambda draw, block: block * 2),
    "swap chunks": _on_bytes(_swap_chunks),
    "append": _on_bytes(_append),
    "empty": _on_bytes(lambda target, content: content.clear()),
}
FILES: dict[str, Callable[[Target], None]] = {
    "swap files": _swap_files,
    "copy over": _copy_over,
    "missing": lambda target: target.path.unlink(),
    "extra": _extra,
    "link inside": _link_to(lambda target: target.other().name),
    "link outside": _link_to(_outside),
    "link nowhere": _link_to(lambda target: "nowhere"),
    "link to itself": _link_to(lambda target: target.path.name),
    "link to device": _link_to(lambda target: "/dev/zero"),
    "folder": _folder,
    "pipe": _pipe,
    "sparse growth": _grow,
}
_ITEMS: dict[str, Callable[[Target], None]] = {
    "flip": _on_items(_flip_in_items),
    "zero block": _on_items(_zero_in_items),
    "repeat item": _on_items(lambda draw, items: items.append(draw.choice(items))),
    "drop item": _on_items(_drop_item),
    "copy item over": _on_items(_copy_item_over),
    "swap items": _on_items(_swap_items),
    "no items": _on_items(lambda draw, items: items.clear()),
    "mix shards": _mix_shards,
    **{way: FILES[way] for way in ("swap files", "copy over", "missing", "extra")},
}
ROWS = {**_ITEMS, "narrow rows": _on_items(_narrow_rows)}
DOCUMENTS = {
    **_ITEMS,
    "cut document": _on_items(_cut_document),
    "merge documents": _on_items(_merge_documents),
}


# Correction of what other files state


def _changed(pristine: Path, directory: Path) -> bool:
    names = [sorted(str(p.relative_to(d)) for p in d.rglob("*")) for d in (pristine, directory)]
    return names[0] != names[1] or any(_differs(pristine / n, directory / n) for n in names[0])


def _differs(one: Path, two: Path) -> bool:
    if one.is_dir() or two.is_symlink() or not two.is_file():
        return not (one.is_dir() and two.is_dir())
    return one.stat().st_size != two.stat().st_size or one.read_bytes() != two.read_bytes()


def _correct(directory: Path, schema: Schema, *, everything: bool) -> None:
    """Writes MANIFEST.json for the files that are there.

    Args:
      directory: the damaged dataset.
      schema: of the dataset as it was.
      everything: fingerprints, sums of stats.json, rows and the list of files are corrected too.

    Raises:
      DataError, ValueError: a file is damaged so that they cannot be computed.
    """
    if everything:
        _correct_fingerprint(directory / "schema.json")
        _correct_sums(directory / "stats.json")
    manifest = json.loads((directory / MANIFEST).read_bytes())
    with contextlib.suppress(ValueError):
        fingerprint = _read_object(directory / "schema.json").get("fingerprint")
        if isinstance(fingerprint, str):
            manifest["fingerprint"] = fingerprint
    files = {file["path"]: file for file in manifest["files"]}
    if everything:
        _list_what_is_there(directory, files)
    for name, file in files.items():
        path = directory / name
        if path.is_file():
            file.update(bytes=path.stat().st_size, sha256=store.sha256(str(path)))
            if everything and file["rows"] is not None and not _is_beside(name):
                file["rows"] = _count_rows(directory, name, schema, file["rows"])
            if "pieces" in file:
                file["pieces"] = sum_pieces(str(path), schema.codec().stride, file["rows"])
    manifest["files"] = [files[name] for name in sorted(files)]
    sign(manifest)
    (directory / MANIFEST).write_text(json.dumps(manifest, sort_keys=True, indent=2))


def _correct_fingerprint(path: Path) -> None:
    values = _read_object(path)
    stated = values.pop("fingerprint", "")
    values["fingerprint"] = canonical_sha256(values)
    if values["fingerprint"] != stated:
        path.write_text(json.dumps(values, sort_keys=True))


def _correct_sums(path: Path) -> None:
    values = _read_object(path)
    corrected = add_up_statistics(values)
    if corrected != values:
        path.write_text(json.dumps(corrected, sort_keys=True))


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > 1 << 24:
        raise ValueError(f"{path} holds no object")
    values = json.loads(path.read_bytes())
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no object")
    return values


def _list_what_is_there(directory: Path, files: dict[str, dict[str, Any]]) -> None:
    """Removes files that are gone, and adds those that no set has."""
    for name in [name for name in files if not (directory / name).is_file()]:
        del files[name]
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and name not in (*files, MANIFEST, LOCK):
            split = name.split("-")[0] if "-of-" in name else None
            files[name] = {"path": name, "split": split, "rows": None if split is None else 0}


def _count_rows(directory: Path, name: str, schema: Schema, stated: int) -> int:
    """The rows of a shard as it is; `stated` if they cannot be counted."""
    with contextlib.suppress(OSError, DataError):  # as where a shard's other file does not fit
        if not schema.holds_documents:
            return len(read_rows(directory / name, schema))
        if document_codec(format_of(name)).holds_ends:
            return len(documents_of(directory, name, schema).offsets) - 1
    return stated
