"""Ways to damage a finished shard set, and to make right again what its format states of itself.

    chosen = choose(pristine, draw)       # such as
    chosen = Damage("train-00000-of-00002.tfrecord", "flip", "sums")
    damage(pristine, directory, chosen, draw)

Levels: `as is`; `sums`, where MANIFEST.json has the sizes and sums of what now lies there; `all`,
where it has the rows too, lists what is there and nothing else, and rows were changed under CRCs
and hashes that are right.
"""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.rows.ragged import Ragged
from pipelines.writers.document_formats.document_format import document_format, open_documents
from pipelines.writers.staging import LOCK
from schemas.errors import DataError
from schemas.features import token_dtype
from schemas.manifest import MANIFEST, Manifest, ManifestFile, file_sha256, parse_manifest
from schemas.metadata import Schema
from schemas.records import DOCUMENT_FORMATS, frame, open_rows
from schemas.typed_json import to_json

LEVELS = ("as is", "sums", "all")
_GROWN = {"as is": 3_000_000_000, "sums": 200_000_000}  # bytes of a sparse file; sums take time
_FRAME = 16  # bytes around a TFRecord's data


@dataclass(frozen=True)
class Damage:
    """What was done: to which file, how, and how much of the rest was made right."""

    file: str
    way: str
    level: str

    @property
    def kind(self) -> str:
        """The file's, for tables: shards of a format are one kind."""
        name = self.file.rsplit("/", 1)[-1]
        return "shard." + name.split(".", 1)[-1] if "-of-" in name else name


def manifest_of(directory: Path) -> Manifest:
    """As it lies there."""
    return parse_manifest((directory / MANIFEST).read_bytes(), MANIFEST)


def schema_of(directory: Path) -> Schema:
    """As it lies there."""
    return Schema.from_dict(json.loads((directory / "schema.json").read_bytes()), "schema.json")


def format_of(name: str) -> str:
    """Of whole documents: the format that a file of a shard is of.

    Raises:
      ValueError: none has such files.
    """
    ending = name.split(".", 1)[1]
    [found] = [name for name, row in DOCUMENT_FORMATS.items() if ending in row.endings]
    return found


def documents_of(directory: Path, name: str, schema: Schema) -> Ragged:
    """Of a shard in the format of one of its files: the ids of its documents or pieces."""
    first = DOCUMENT_FORMATS[format_of(name)].endings[0]
    path = f"{name.split('.', 1)[0]}.{first}"
    return open_documents(schema, path, lambda path: str(directory / path))


def choose(pristine: Path, draw: random.Random) -> Damage:
    """Any kind of file, as likely as any other; then a file of it, a level, a way."""
    kinds: dict[str, list[str]] = {MANIFEST: [MANIFEST]}
    for file in manifest_of(pristine).files:
        kinds.setdefault(Damage(file.path, "", "").kind, []).append(file.path)
    name = draw.choice(draw.choice(sorted(kinds.values())))
    level = "as is" if name == MANIFEST else draw.choice(LEVELS)
    return Damage(name, draw.choice(sorted(_ways(name, level, schema_of(pristine)))), level)


def damage(pristine: Path, directory: Path, chosen: Damage, draw: random.Random) -> bool:
    """Copies a set and damages the copy; False where nothing changed, or sums cannot be right."""
    shutil.copytree(pristine, directory)
    manifest, schema = manifest_of(pristine), schema_of(pristine)
    target = Target(directory, chosen.file, manifest, schema, chosen.level, draw)
    try:
        _ways(chosen.file, chosen.level, schema)[chosen.way](target)
        if not _changed(pristine, directory):
            return False
        if chosen.level != "as is":
            _make_sums_right(directory, manifest, everything=chosen.level == "all")
    except (DataError, ValueError):  # not even the classes of `schemas` take it
        return False
    return True


def _ways(name: str, level: str, schema: Schema) -> dict[str, Callable[["Target"], None]]:
    if level == "all" and Damage(name, "", "").kind.startswith("shard."):
        return DOCUMENTS if schema.holds_documents else ROWS
    return {**BYTES, **FILES}


@dataclass(frozen=True)
class Target:
    """A file to be damaged, and what one must know for it."""

    directory: Path
    name: str
    manifest: Manifest
    schema: Schema
    level: str
    draw: random.Random

    @property
    def path(self) -> Path:
        return self.directory / self.name

    def other(self) -> Path:
        """Another file of the set, of the same kind if there is one."""
        names = [file.path for file in self.manifest.files if file.path != self.name]
        same = [name for name in names if name.split(".", 1)[-1] == self.name.split(".", 1)[-1]]
        return self.directory / self.draw.choice(same or names)

    def documents(self) -> list[np.ndarray]:
        """Of a shard in the format of the file: the ids of each document or piece."""
        values, offsets = documents_of(self.directory, self.name, self.schema)
        return [values[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]

    def write_documents(self, documents: list[np.ndarray]) -> None:
        """Writes the shard anew in the format of the file."""
        held = np.concatenate([*documents, np.zeros(0, token_dtype(self.schema.vocab_size))])
        ragged = Ragged.of(held, [len(document) for document in documents])
        made = document_format(format_of(self.name)).encode(ragged, self.schema)
        for ending, parts in made.items():
            content = b"".join(bytes(part) for part in parts)
            replaced = self.directory / f"{self.name.split('.', 1)[0]}.{ending}"
            replaced.unlink()  # mapped by who reads it
            replaced.write_bytes(content)

    def rows(self, path: Path | None = None) -> np.ndarray:
        """Of a shard: uint8 [B, stride]."""
        reader = open_rows(str(path or self.path), self.schema.codec().stride)
        rows = np.array(reader.read_range(0, len(reader)))
        reader.close()
        return rows


# Bytes of a file


def _block(target: Target, content: bytearray) -> tuple[int, int]:
    """Where a block begins and ends: in a TFRecord half of the time whole records."""
    draw, size = target.draw, len(content)
    if target.path.suffix == ".tfrecord" and draw.random() < 0.5:
        framed = target.schema.codec().stride + _FRAME
        first = draw.randrange(max(1, size // framed))
        return first * framed, (first + draw.randint(1, 3)) * framed
    start = draw.randrange(size + 1)
    return start, start + draw.choice((1, 8, 64, 512, 4096))


def _flip(target: Target, content: bytearray) -> None:
    for _ in range(target.draw.choice((1, 1, 2, 8)) if content else 0):
        content[target.draw.randrange(len(content))] ^= 1 << target.draw.randrange(8)


def _truncate(target: Target, content: bytearray) -> None:
    del content[_block(target, content)[0] :]


def _insert(target: Target, content: bytearray) -> None:
    start, _ = _block(target, content)
    content[start:start] = target.draw.randbytes(target.draw.choice((1, 4, 40, 5000)))


def _zero(target: Target, content: bytearray) -> None:
    start, stop = _block(target, content)
    content[start:stop] = bytes(len(content[start:stop]))


def _cut_out(target: Target, content: bytearray) -> None:
    start, stop = _block(target, content)
    del content[start:stop]


def _repeat(target: Target, content: bytearray) -> None:
    start, stop = _block(target, content)
    content[start:start] = content[start:stop]


def _swap_chunks(target: Target, content: bytearray) -> None:
    start, stop = _block(target, content)
    length = len(content[start:stop])
    there = target.draw.randrange(len(content) - length + 1)
    if length and not start - length < there < stop:
        here, other = content[start:stop], content[there : there + length]
        content[start:stop], content[there : there + length] = other, here


def _append(target: Target, content: bytearray) -> None:
    content += target.draw.choice((b"\n", b"\0", b"\0" * 4096, bytes(content), b"{}", b"\xff"))


def _empty(target: Target, content: bytearray) -> None:
    content.clear()


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
    """A copy that lies outside the set."""
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


# Rows of a shard, under hashes that are right


def _on_rows(change: Callable[[Target, np.ndarray], np.ndarray]) -> Callable[[Target], None]:
    return lambda target: write_rows(target.path, change(target, target.rows()))


def write_rows(path: Path, rows: np.ndarray) -> None:
    """A shard of rows uint8 [B, stride], in the format that its name tells."""
    if path.suffix == ".tfrecord":
        path.write_bytes(frame(rows).tobytes())
        return
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for row in rows:
        writer.write(row.tobytes())
    writer.close()


def _flip_in_rows(target: Target, rows: np.ndarray) -> np.ndarray:
    for _ in range(target.draw.choice((1, 1, 2, 8)) if rows.size else 0):
        row, byte = target.draw.randrange(len(rows)), target.draw.randrange(rows.shape[1])
        rows[row, byte] ^= 1 << target.draw.randrange(8)
    return rows


def _zero_in_rows(target: Target, rows: np.ndarray) -> np.ndarray:
    start = target.draw.randrange(rows.shape[1])
    rows[target.draw.randrange(max(1, len(rows))) :, start : start + 64] = 0
    return rows


def _repeat_row(target: Target, rows: np.ndarray) -> np.ndarray:
    return np.concatenate((rows, rows[target.draw.randrange(max(1, len(rows))) :][:1]))


def _drop_row(target: Target, rows: np.ndarray) -> np.ndarray:
    return np.delete(rows, target.draw.randrange(max(1, len(rows))), axis=0)


def _copy_row_over(target: Target, rows: np.ndarray) -> np.ndarray:
    rows[target.draw.randrange(len(rows))] = rows[target.draw.randrange(len(rows))]
    return rows


def _swap_rows(target: Target, rows: np.ndarray) -> np.ndarray:
    one, two = target.draw.randrange(len(rows)), target.draw.randrange(len(rows))
    rows[[one, two]] = rows[[two, one]]
    return rows


def _no_rows(target: Target, rows: np.ndarray) -> np.ndarray:
    return rows[:0]


def _narrow_rows(target: Target, rows: np.ndarray) -> np.ndarray:
    return rows[:, : target.draw.randrange(1, rows.shape[1])]


def _mix_shards(target: Target) -> None:
    """A row of another shard takes the place of one here, and the other way round."""
    other = target.other()
    here, there = target.rows(), target.rows(other)
    one, two = target.draw.randrange(len(here)), target.draw.randrange(len(there))
    here[one], there[two] = there[two].copy(), here[one].copy()
    write_rows(target.path, here)
    write_rows(other, there)


# Documents of a shard, under hashes that are right


def _on_documents(
    change: Callable[[random.Random, list[np.ndarray]], object],
) -> Callable[[Target], None]:
    def apply(target: Target) -> None:
        documents = [document.copy() for document in target.documents()]
        if documents:
            change(target.draw, documents)
        target.write_documents(documents)

    return apply


def _flip_in_documents(draw: random.Random, documents: list[np.ndarray]) -> None:
    chosen = draw.choice(documents)
    chosen[draw.randrange(len(chosen))] ^= 1 << draw.randrange(8)


def _swap_documents(draw: random.Random, documents: list[np.ndarray]) -> None:
    one, two = draw.randrange(len(documents)), draw.randrange(len(documents))
    documents[one], documents[two] = documents[two], documents[one]


def _cut_document(draw: random.Random, documents: list[np.ndarray]) -> None:
    chosen = draw.randrange(len(documents))
    documents[chosen] = documents[chosen][draw.randrange(len(documents[chosen])) :]


def _merge_documents(draw: random.Random, documents: list[np.ndarray]) -> None:
    """Two become one: another index over the same ids."""
    chosen = draw.randrange(len(documents))
    documents[chosen : chosen + 2] = [np.concatenate(documents[chosen : chosen + 2])]


def _drop_document(draw: random.Random, documents: list[np.ndarray]) -> None:
    del documents[draw.randrange(len(documents))]


def _repeat_document(draw: random.Random, documents: list[np.ndarray]) -> None:
    documents.append(draw.choice(documents))


BYTES = {
    "flip": _on_bytes(_flip),
    "truncate": _on_bytes(_truncate),
    "insert": _on_bytes(_insert),
    "zero block": _on_bytes(_zero),
    "cut out": _on_bytes(_cut_out),
    "repeat block": _on_bytes(_repeat),
    "swap chunks": _on_bytes(_swap_chunks),
    "append": _on_bytes(_append),
    "empty": _on_bytes(_empty),
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
ROWS: dict[str, Callable[[Target], None]] = {
    "flip": _on_rows(_flip_in_rows),
    "zero block": _on_rows(_zero_in_rows),
    "repeat row": _on_rows(_repeat_row),
    "drop row": _on_rows(_drop_row),
    "copy row over": _on_rows(_copy_row_over),
    "swap rows": _on_rows(_swap_rows),
    "no rows": _on_rows(_no_rows),
    "narrow rows": _on_rows(_narrow_rows),
    "mix shards": _mix_shards,
    "swap files": _swap_files,
    "copy over": _copy_over,
    "missing": FILES["missing"],
    "extra": _extra,
}


DOCUMENTS: dict[str, Callable[[Target], None]] = {
    "flip": _on_documents(_flip_in_documents),
    "swap documents": _on_documents(_swap_documents),
    "cut document": _on_documents(_cut_document),
    "merge documents": _on_documents(_merge_documents),
    "drop document": _on_documents(_drop_document),
    "repeat document": _on_documents(_repeat_document),
    "no documents": _on_documents(lambda draw, documents: documents.clear()),
    **{way: ROWS[way] for way in ("swap files", "copy over", "missing", "extra")},
}


# What the format states


def _changed(pristine: Path, directory: Path) -> bool:
    names = [sorted(str(p.relative_to(d)) for p in d.rglob("*")) for d in (pristine, directory)]
    return names[0] != names[1] or any(_differs(pristine / n, directory / n) for n in names[0])


def _differs(one: Path, two: Path) -> bool:
    if one.is_dir() or two.is_symlink() or not two.is_file():
        return not (one.is_dir() and two.is_dir())
    return one.stat().st_size != two.stat().st_size or one.read_bytes() != two.read_bytes()


def _make_sums_right(directory: Path, manifest: Manifest, *, everything: bool) -> None:
    """MANIFEST.json of what lies there; with `everything` also rows, the list, fingerprints."""
    if everything:
        if not (directory / "schema.json").is_file():
            raise ValueError("there is no contract to make a fingerprint of")
        schema = json.loads((directory / "schema.json").read_bytes())
        schema = Schema.from_dict({**schema, "fingerprint": ""}, "schema.json")
        (directory / "schema.json").write_bytes(to_json(schema))
        manifest = replace(manifest, fingerprint=schema.fingerprint, **_without_digest(manifest))
    files = {file.path: _as_it_lies(directory, file, everything) for file in manifest.files}
    if everything:
        files = {path: file for path, file in files.items() if (directory / path).is_file()}
        for path in directory.rglob("*"):
            name = path.relative_to(directory).as_posix()
            if path.is_file() and name not in (*files, MANIFEST, LOCK):
                split = name.split("-")[0] if "-of-" in name else None
                file = ManifestFile(name, 1, "0" * 64, split, None if split is None else 0)
                files[name] = _as_it_lies(directory, file, everything)
    listed = tuple(files[path] for path in sorted(files))
    made = replace(manifest, files=listed, **_without_digest(manifest))
    text = json.dumps(asdict(made), sort_keys=True, indent=2)
    (directory / MANIFEST).write_text(text)


def _without_digest(manifest: Manifest) -> dict[str, Any]:
    """So that it is computed anew."""
    return {"digest": ""} if hasattr(manifest, "digest") else {}


def _as_it_lies(directory: Path, file: ManifestFile, everything: bool) -> ManifestFile:
    path = directory / file.path
    if not path.is_file():
        return file
    rows = file.rows
    schema = schema_of(directory) if everything and rows is not None else None
    if schema and schema.holds_documents:
        if document_format(format_of(file.path)).TELLS_DOCUMENTS:
            with contextlib.suppress(OSError, DataError):  # the shard's other file does not fit
                rows = len(documents_of(directory, file.path, schema).offsets) - 1
    elif schema:
        reader = open_rows(str(path), schema.codec().stride)
        rows = len(reader)
        reader.close()
    size = path.stat().st_size
    return replace(file, bytes=size, sha256=file_sha256(str(path)), rows=rows)
