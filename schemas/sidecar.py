"""The sidecars of a shard set: schema.json, stats.json, inputs.json, MANIFEST.json.

Each is a frozen dataclass that refuses values which cannot be right, and is written with sorted
keys and without times, so that the same work gives the same bytes. MANIFEST.json is written last:
a directory without it is not a shard set.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

from schemas.codec import ENCODINGS, RowCodec
from schemas.errors import DataError
from schemas.features import MAX_TOKENS, TASKS, Feature
from schemas.records import FORMATS

FORMAT_VERSION = 1
MANIFEST = "MANIFEST.json"
PACKINGS = ("best_fit", "concat", "none")
ROLES = ("bos", "eos", "pad", "mask", "unk")
HISTOGRAM_BINS = 33  # bin b counts documents of 2**(b-1) <= tokens < 2**b; bin 0 is empty ones

T = TypeVar("T")


def to_json(sidecar: Any) -> bytes:
    """A sidecar as UTF-8 JSON with sorted keys, two spaces of indent and a final newline."""
    text = json.dumps(asdict(sidecar), sort_keys=True, indent=2, ensure_ascii=False)
    return text.encode() + b"\n"


def _check(good: bool, owner: str, name: str, value: Any, remedy: str) -> None:
    if not good:
        raise DataError(f"{owner}: {name} is {value!r}: {remedy}")


def _from_dict(cls: Type[T], values: Any, source: str) -> T:
    """Builds `cls`, refusing fields that are missing or unknown."""
    if not isinstance(values, dict):
        raise DataError(f"{source}: expected an object, found {values!r}")
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    unknown, missing = sorted(set(values) - known), sorted(known - set(values))
    if unknown or missing:
        raise DataError(
            f"{source}: missing fields {missing}, unknown fields {unknown}: it was written by another version of "
            "Textmill or edited; build the set anew"
        )
    try:
        return cls(**values)
    except TypeError as error:
        raise DataError(f"{source}: {error}") from error


def _load(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return json.loads(file.read().decode())
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from error


@dataclass(frozen=True)
class Schema:
    """What a trainer may rely on (schema.json).

    Attributes:
      format_version: of the rows and sidecars; readers refuse another.
      task: one of `schemas.features.TASKS`.
      parameters: the task's and the source's own settings, by flag name.
      max_length: L, tokens a row.
      vocab_size: every id is below it.
      special_ids: role (bos, eos, pad, mask, unk) to id; absent roles are absent.
      all_special_ids: every id that stands for no text, ascending.
      tokenizer_sha256: of tokenizer.json in the set's directory.
      golden: fixed strings and their ids, for trainers that carry their own tokenizer.
      packing: best_fit, concat or none.
      static_masking: whether rows carry masks.
      mask_rate: share of a row's tokens that static masking picks.
      whole_word_masking: whether masks cover whole words.
      mask_copies: differently masked copies of each row.
      max_masked: K; 0 without static masking.
      splits: name to share of the documents; adds up to 1.
      shards: split to number of shards.
      seed: of every random choice.
      encoding: bytes or int64_list.
      file_formats: array_record, tfrecord or both.
      features: of a row, sorted by name.
      code_version: of Textmill, which wrote the set.
      fingerprint: sha256 of all other fields.
    """

    format_version: int
    task: str
    parameters: Dict[str, Any]
    max_length: int
    vocab_size: int
    special_ids: Dict[str, int]
    all_special_ids: Tuple[int, ...]
    tokenizer_sha256: str
    golden: Tuple[Tuple[str, Tuple[int, ...]], ...]
    packing: str
    static_masking: bool
    mask_rate: float
    whole_word_masking: bool
    mask_copies: int
    max_masked: int
    splits: Dict[str, float]
    shards: Dict[str, int]
    seed: int
    encoding: str
    file_formats: Tuple[str, ...]
    features: Tuple[Feature, ...]
    code_version: str
    fingerprint: str = ""

    def __post_init__(self) -> None:
        """Refuses what no trainer could use."""

        def check(good: bool, name: str, remedy: str) -> None:
            _check(good, "schema.json", name, getattr(self, name), remedy)

        check(
            self.format_version == FORMAT_VERSION,
            "format_version",
            f"this Textmill reads version {FORMAT_VERSION}; build the set anew or install the Textmill that "
            "wrote it",
        )
        check(self.task in TASKS, "task", "one of " + ", ".join(TASKS))
        check(0 < self.max_length < MAX_TOKENS, "max_length", f"1 to {MAX_TOKENS - 1}")
        check(0 < self.vocab_size < 1 << 31, "vocab_size", "1 to 2**31 - 1")
        check(set(self.special_ids) <= set(ROLES), "special_ids", "roles are " + ", ".join(ROLES))
        check(
            all(0 <= i < self.vocab_size for i in self.all_special_ids)
            and set(self.special_ids.values()) <= set(self.all_special_ids),
            "all_special_ids",
            "ids below vocab_size that include those of special_ids",
        )
        check(self.packing in PACKINGS, "packing", "one of " + ", ".join(PACKINGS))
        check(0 <= self.mask_rate < 1, "mask_rate", "a share from 0 to below 1")
        check(self.mask_copies >= 1, "mask_copies", "at least 1")
        check(0 <= self.max_masked <= self.max_length, "max_masked", "0 to max_length")
        check(
            bool(self.splits) and abs(sum(self.splits.values()) - 1) < 1e-9,
            "splits",
            "shares that add up to 1",
        )
        check(
            set(self.shards) == set(self.splits) and min(self.shards.values()) > 0,
            "shards",
            "a positive number for every split",
        )
        check(self.encoding in ENCODINGS, "encoding", "one of " + ", ".join(ENCODINGS))
        check(
            bool(self.file_formats) and set(self.file_formats) <= set(FORMATS),
            "file_formats",
            "some of " + ", ".join(FORMATS),
        )
        expected = self.computed_fingerprint()
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", expected)
        check(
            self.fingerprint == expected, "fingerprint", "the file was edited; expected " + expected
        )

    def computed_fingerprint(self) -> str:
        """The sha256 of every field but `fingerprint`, as canonical JSON."""
        values = asdict(self)
        del values["fingerprint"]
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def codec(self) -> RowCodec:
        """The codec of these rows."""
        return RowCodec(self.features, self.encoding)

    def shard_names(self, split: str) -> List[str]:
        """["train-00000-of-00002", "train-00001-of-00002"]."""
        count = self.shards[split]
        return [shard_name(split, index, count) for index in range(count)]

    @staticmethod
    def from_dict(values: Any, source: str) -> "Schema":
        """From parsed JSON; `source` names the file in errors."""
        if isinstance(values, dict):
            values = dict(values)
            for name in ("all_special_ids", "file_formats"):
                values[name] = tuple(values.get(name, ()))
            values["golden"] = tuple((text, tuple(ids)) for text, ids in values.get("golden", ()))
            values["features"] = tuple(
                _from_dict(Feature, dict(f, shape=tuple(f.get("shape", ()))), source + ": features")
                for f in values.get("features", ())
            )
        return _from_dict(Schema, values, source)

    def differences(self, other: "Schema") -> List[str]:
        """What differs, a line a field: `max_length: 128 here, 512 there`."""
        return [
            f"{f.name}: {getattr(self, f.name)!r} here, {getattr(other, f.name)!r} there"
            for f in fields(self)
            if f.name != "fingerprint" and getattr(self, f.name) != getattr(other, f.name)
        ]


def shard_name(split: str, index: int, count: int) -> str:
    """A shard's name without extension: `train-00003-of-00016`."""
    return f"{split}-{index:05d}-of-{count:05d}"


@dataclass(frozen=True)
class ShardStatistics:
    """Counts of one shard or, added up, of a split.

    Attributes:
      documents: kept.
      duplicates: exact repeats that were dropped.
      text_bytes: UTF-8 bytes of the kept documents.
      tokens: that the tokenizer made of the kept documents.
      specials_added: such as bos and eos around each segment.
      tokens_truncated: left out because the user asked for truncation.
      rows: all of them, masked copies included.
      tokens_in_rows: not padding; copies included.
      segments: copies included.
      masked: slots in use.
      length_histogram: bin b counts documents of 2**(b-1) <= tokens < 2**b; bin 0 of none.
    """

    documents: int = 0
    duplicates: int = 0
    text_bytes: int = 0
    tokens: int = 0
    specials_added: int = 0
    tokens_truncated: int = 0
    rows: int = 0
    tokens_in_rows: int = 0
    segments: int = 0
    masked: int = 0
    length_histogram: Tuple[int, ...] = (0,) * HISTOGRAM_BINS

    def __add__(self, other: "ShardStatistics") -> "ShardStatistics":
        """The counts of both."""
        sums = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name != "length_histogram"
        }
        pairs = zip(self.length_histogram, other.length_histogram)
        return ShardStatistics(length_histogram=tuple(a + b for a, b in pairs), **sums)

    def density(self, max_length: int) -> float:
        """Share of the rows' places that hold a token."""
        return self.tokens_in_rows / (self.rows * max_length) if self.rows else 0.0


@dataclass(frozen=True)
class Statistics:
    """Counts of a whole set (stats.json); adding two gives the counts of both.

    Attributes:
      documents_read: found in the inputs.
      documents_rejected: reason to number; refused documents are in rejects/.
      source_bytes: read from the inputs, after decompression.
      documents_guarded: encoded by the reference tokenizer, because the fast engine might differ.
      shards: name to its counts.
    """

    documents_read: int = 0
    documents_rejected: Dict[str, int] = field(default_factory=dict)
    source_bytes: int = 0
    documents_guarded: int = 0
    shards: Dict[str, ShardStatistics] = field(default_factory=dict)

    def __add__(self, other: "Statistics") -> "Statistics":
        """The counts of both; a shard may be counted once only."""
        twice = set(self.shards) & set(other.shards)
        if twice:
            raise ValueError(f"shards counted twice: {sorted(twice)}")
        rejected = dict(self.documents_rejected)
        for reason, number in other.documents_rejected.items():
            rejected[reason] = rejected.get(reason, 0) + number
        return Statistics(
            documents_read=self.documents_read + other.documents_read,
            documents_rejected=rejected,
            source_bytes=self.source_bytes + other.source_bytes,
            documents_guarded=self.documents_guarded + other.documents_guarded,
            shards={**self.shards, **other.shards},
        )

    def split(self, name: str) -> ShardStatistics:
        """The counts of one split."""
        prefix = name + "-"
        shards = [s for key, s in self.shards.items() if key.rsplit("-of-", 1)[0][:-5] == prefix]
        return sum(shards, ShardStatistics())

    def total(self) -> ShardStatistics:
        """The counts of all splits."""
        return sum(self.shards.values(), ShardStatistics())

    def broken_equations(self, mask_copies: int = 1) -> List[str]:
        """The conservation equations that do not hold, each as a sentence; [] if all is well."""
        broken = []
        total = self.total()
        rejected = sum(self.documents_rejected.values())
        accounted = total.documents + total.duplicates + rejected
        if self.documents_read != accounted:
            broken.append(
                f"documents read {self.documents_read:,} != kept {total.documents:,} + duplicates {total.duplicates:,} + rejected {rejected:,}"
            )
        for name, shard in sorted(self.shards.items()):
            due = shard.tokens + shard.specials_added - shard.tokens_truncated
            if due * mask_copies != shard.tokens_in_rows:
                broken.append(
                    f"{name}: (tokens {shard.tokens:,} + specials {shard.specials_added:,} - truncated {shard.tokens_truncated:,}) x copies {mask_copies} != tokens in "
                    f"rows {shard.tokens_in_rows:,}"
                )
        return broken

    @staticmethod
    def from_dict(values: Any, source: str) -> "Statistics":
        """From parsed JSON; `source` names the file in errors."""
        if isinstance(values, dict):
            shards = {
                name: _from_dict(
                    ShardStatistics,
                    dict(shard, length_histogram=tuple(shard.get("length_histogram", ()))),
                    f"{source}: shards: {name}",
                )
                for name, shard in values.get("shards", {}).items()
            }
            values = dict(values, shards=shards)
        return _from_dict(Statistics, values, source)


@dataclass(frozen=True)
class InputFile:
    """One input: its path as given, bytes on disk, and xxh3_128 of its content in ranges."""

    path: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class Inputs:
    """What a set was made from (inputs.json)."""

    files: Tuple[InputFile, ...]

    def content(self) -> List[Tuple[int, str]]:
        """Sizes and digests, sorted: two sets of files with equal content hold the same bytes."""
        return sorted((file.bytes, file.digest) for file in self.files)

    @staticmethod
    def from_dict(values: Any, source: str) -> "Inputs":
        """From parsed JSON; `source` names the file in errors."""
        inputs = _from_dict(Inputs, values, source)
        return Inputs(tuple(_from_dict(InputFile, file, source) for file in inputs.files))


@dataclass(frozen=True)
class ManifestFile:
    """One file of a set; `split` and `rows` are None for what is not a shard."""

    path: str
    bytes: int
    sha256: str
    split: Optional[str] = None
    rows: Optional[int] = None


@dataclass(frozen=True)
class Manifest:
    """Every file of a set but itself (MANIFEST.json), sorted by path."""

    format_version: int
    fingerprint: str
    files: Tuple[ManifestFile, ...]

    def shards(self, split: str, file_format: str) -> List[ManifestFile]:
        """A split's shards in one format, in order."""
        suffix = "." + file_format
        return [f for f in self.files if f.split == split and f.path.endswith(suffix)]

    def rows(self, split: str, file_format: str) -> int:
        """Rows of a split."""
        return sum(f.rows or 0 for f in self.shards(split, file_format))

    @staticmethod
    def from_dict(values: Any, source: str) -> "Manifest":
        """From parsed JSON; `source` names the file in errors."""
        manifest = _from_dict(Manifest, values, source)
        files = tuple(_from_dict(ManifestFile, file, source) for file in manifest.files)
        for file in files:
            outside = os.path.isabs(file.path) or ".." in file.path.split("/")
            _check(not outside, source, "path", file.path, "a path inside the set's directory")
        return replace(manifest, files=files)


@dataclass(frozen=True)
class SetInfo:
    """A finished set: where it lies and its sidecars."""

    directory: str
    schema: Schema
    stats: Statistics
    inputs: Inputs
    manifest: Manifest


def file_sha256(path: str) -> str:
    """sha256 of a file's bytes, as hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def read_set(directory: str) -> SetInfo:
    """Reads the sidecars of a finished set and checks them against the manifest.

    Sizes of all files are checked, sha256 of the sidecars only; `pipelines.verify` checks all.

    Args:
      directory: where MANIFEST.json lies.

    Raises:
      DataError: not a shard set, or not as it was published; names the file.
    """
    manifest_path = os.path.join(directory, MANIFEST)
    if not os.path.isfile(manifest_path):
        raise DataError(
            f"{directory} is not a finished shard set: it has no {MANIFEST}. Give the directory that build_shards "
            "wrote; if its run was interrupted, run the same command again"
        )
    manifest = Manifest.from_dict(_load(manifest_path), manifest_path)
    for file in manifest.files:
        path = os.path.join(directory, file.path)
        size = os.path.getsize(path) if os.path.isfile(path) else None
        if size != file.bytes:
            state = "is missing" if size is None else f"has {size:,} bytes"
            raise DataError(
                f"{path} {state}, where the manifest says {file.bytes:,} bytes: copy the set again or build it "
                "anew"
            )
    listed = {file.path: file for file in manifest.files}
    loaded = {}
    for name in ("schema.json", "stats.json", "inputs.json"):
        path = os.path.join(directory, name)
        if name not in listed:
            raise DataError(f"{manifest_path} does not list {name}: build the set anew")
        if file_sha256(path) != listed[name].sha256:
            raise DataError(
                f"{path} was changed after the set was published: its sha256 is not the manifest's"
            )
        loaded[name] = _load(path), path
    schema = Schema.from_dict(*loaded["schema.json"])
    _check(
        manifest.fingerprint == schema.fingerprint,
        manifest_path,
        "fingerprint",
        manifest.fingerprint,
        f"not the schema's, {schema.fingerprint}; build the set anew",
    )
    return SetInfo(
        directory,
        schema,
        Statistics.from_dict(*loaded["stats.json"]),
        Inputs.from_dict(*loaded["inputs.json"]),
        manifest,
    )
