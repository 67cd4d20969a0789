"""The metadata files of a dataset: schema.json, and inputs.json, which a corpus has, too.

Each is a frozen dataclass that rejects invalid values. Keys are sorted and there are no times, so
the same work gives the same bytes.
"""

import json
import re
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from textmill.schemas.errors import UsageError
from textmill.schemas.format.codec import ENCODINGS, RowCodec
from textmill.schemas.format.features import (
    MAX_TOKENS,
    MAX_VOCABULARY,
    TASKS,
    Feature,
    check_parameters,
    is_training,
    max_masked_slots,
    task_features,
)
from textmill.schemas.format.manifest import check_version
from textmill.schemas.format.records import DOCUMENT_FORMATS, FORMATS
from textmill.schemas.typed_json import (
    SHA256,
    Constraint,
    check,
    check_constraints,
    from_json,
    hash_json,
    number,
    one_of,
    text_like,
)

FORMAT_VERSION = 4  # of rows, and of the metadata files of a dataset
METADATA_FILES = ("schema.json", "stats.json", "inputs.json")
PACKINGS = ("best_fit", "concat", "none")
MASK_UNITS = ("token", "word", "span")
MAX_COPIES = 1 << 16  # of each row
MAX_SHARDS = 99_999  # of a split: five digits in a file's name
ROLES = ("bos", "eos", "pad", "mask", "unk")
# Fields that follow from others.
_DERIVED = (
    *("all_special_ids", "code_version", "features", "golden", "max_masked", "special_ids"),
    *("static_masking", "vocab_size"),
)
_SHOWN, _LONGEST_VALUES = 4, 120  # differing settings in a message; characters of their values
_SPLIT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DIGEST = text_like("[0-9a-f]+", "hex digits")
_CONSTRAINTS = {
    "task": one_of(*TASKS),
    "max_length": number(1, MAX_TOKENS - 1),
    "vocab_size": number(1, MAX_VOCABULARY),
    "tokenizer_sha256": SHA256,
    "packing": one_of(*PACKINGS),
    "mask_rate": Constraint(lambda v: 0 <= v < 1, "a share from 0 to below 1"),
    "mask_unit": one_of(*MASK_UNITS),
    "mask_copies": number(1, MAX_COPIES),
    "seed": number(0, (1 << 64) - 1),
    "encoding": one_of(*ENCODINGS),
}

_Rule = Tuple[str, bool, str]  # a field, whether it is good, and a description of valid values


@dataclass(frozen=True)
class Schema:
    """The content of schema.json: all that a trainer must know about the rows.

    Attributes:
      format_version: version of rows and metadata files; readers reject others.
      task: one of `schemas.format.features.TASKS`.
      parameters: settings of the task and of the source, by flag name.
      max_length: L, tokens of a row; for tokenized documents, the most tokens of a record of
        array_record.
      vocab_size: all ids are below it.
      special_ids: role (bos, eos, pad, mask, unk) to id; roles without a token are absent.
      all_special_ids: every id that stands for no text, ascending.
      tokenizer_sha256: sha256 of tokenizer.json in the dataset's directory.
      golden: fixed strings and their ids, for trainers that have their own tokenizer.
      packing: best_fit, concat or none.
      static_masking: whether rows contain masks.
      mask_rate: share of a row's tokens that static masking picks.
      mask_unit: the unit that static masking masks as a whole: token, word, or span of words.
      mask_copies: differently masked copies of each row of a training split; other splits have
        one.
      max_masked: K; 0 without static masking.
      splits: name to share of the documents; the sum is 1, or all are 0 if each had its own input.
      shards: split to number of shards.
      seed: seed of all random choices.
      encoding: one of ENCODINGS of `schemas.format.codec`.
      file_formats: array_record, tfrecord or both; for tokenized documents some of
        DOCUMENT_FORMATS.
      features: features of a row, sorted by name.
      code_version: version of Textmill that wrote the dataset.
      fingerprint: sha256 of all other fields; computed if it is "".
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
    mask_unit: str
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
        """Rejects values that no trainer could use."""
        check_version(self.format_version, FORMAT_VERSION)
        check_constraints(vars(self), _CONSTRAINTS)
        check_parameters(
            self.task, self.parameters, vocab_size=self.vocab_size, special_ids=self.special_ids
        )
        rules = chain(self._rules_of_ids(), self._rules_of_masks(), self._rules_of_files())
        for name, good, remedy in rules:
            check(good, name, getattr(self, name), remedy)
        expected = self.compute_fingerprint()
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", expected)
        remedy = f"the other fields give {expected}: the file was edited; build the dataset again"
        check(self.fingerprint == expected, "fingerprint", self.fingerprint, remedy)

    def _rules_of_ids(self) -> "Iterator[_Rule]":
        yield "special_ids", set(self.special_ids) <= set(ROLES), "roles are " + ", ".join(ROLES)
        ids, known = self.all_special_ids, range(self.vocab_size)
        yield (
            "all_special_ids",
            list(ids) == sorted({i for i in ids if i in known})
            and set(self.special_ids.values()) <= set(ids),
            "ascending ids below vocab_size that include those of special_ids",
        )
        good = all(i in known for _, ids in self.golden for i in ids)
        yield "golden", good, "ids below vocab_size"

    def _rules_of_masks(self) -> "Iterator[_Rule]":
        maskable = any(feature.name == "masked_ids" for feature in self._task_features(1))
        yield "mask_rate", maskable or not self.mask_rate, "must be 0 in rows that are not masked"
        if not self.static_masking:
            yield "mask_unit", self.mask_unit == "token", "must be token without static masking"
            yield "mask_copies", self.mask_copies == 1, "must be 1 without static masking"
            yield "max_masked", self.max_masked == 0, "must be 0 without static masking"
            return
        good = list(self.special_ids.values()).count(self.special_ids.get("mask", -1)) == 1
        yield "special_ids", good, "static masking needs a mask token with its own id"
        slots = max_masked_slots(self.max_length, self.mask_rate)
        good = 0 < self.max_masked <= self.max_length and self.max_masked == slots
        yield "max_masked", good, f"must be mask_rate x max_length, rounded, at least 1: {slots}"

    def _rules_of_files(self) -> "Iterator[_Rule]":
        shares = self.splits.values()
        yield (
            "splits",
            bool(self.splits)
            and all(map(_SPLIT_NAME.fullmatch, self.splits))
            and (self.splits_given or (min(shares) > 0 and abs(sum(shares) - 1) < 1e-9)),
            "names of letters, digits and _ with shares above 0 that add up to 1, or all 0",
        )
        good = all(0 < count <= MAX_SHARDS for count in self.shards.values())
        remedy = f"a positive number for every split, up to {MAX_SHARDS}"
        yield "shards", good and set(self.shards) == set(self.splits), remedy
        known = DOCUMENT_FORMATS if self.holds_documents else FORMATS
        formats = sorted(set(self.file_formats) & set(known))
        good = bool(formats) and list(self.file_formats) == formats
        yield "file_formats", good, "some of " + ", ".join(known)
        own, expected = (
            [(f.name, f.dtype, f.shape, f.kind) for f in features]
            for features in (self.features, self._task_features(self.max_masked))
        )
        listed = ", ".join(
            f"{name} {dtype}{list(shape)} ({kind})" for name, dtype, shape, kind in expected
        )
        yield "features", own == expected, f"those of the task are {listed}"

    def _task_features(self, max_masked: int) -> Tuple[Feature, ...]:
        return task_features(
            self.task,
            max_length=self.max_length,
            vocab_size=self.vocab_size,
            max_masked=max_masked,
            parameters=self.parameters,
        )

    def compute_fingerprint(self) -> str:
        """The sha256 of all fields except `fingerprint`, as canonical JSON."""
        values = asdict(self)
        del values["fingerprint"]
        return hash_json(values)

    @property
    def splits_given(self) -> bool:
        """Whether each split has its own input instead of a share of the documents."""
        return not any(self.splits.values())

    @property
    def holds_documents(self) -> bool:
        """Whether the dataset has tokenized documents in DOCUMENT_FORMATS, not rows of one length.

        They have no codec.
        """
        return any(-1 in feature.shape for feature in self.features)

    @property
    def is_for_tfds(self) -> bool:
        """Whether TensorFlow Datasets can read the rows; it cannot read bits."""
        return not self.holds_documents and self.encoding != "bits"

    def endings(self, file_format: str) -> Tuple[str, ...]:
        """The endings of a shard's files in a format: ("array_record",)."""
        return DOCUMENT_FORMATS[file_format].endings if self.holds_documents else (file_format,)

    @property
    def read_ending(self) -> str:
        """The ending of the file that is read if a shard has several formats."""
        order = list(DOCUMENT_FORMATS) if self.holds_documents else sorted(self.file_formats)
        return self.endings(min(self.file_formats, key=order.index))[0]

    @property
    def row_tokens(self) -> int:
        """Token positions of a row: L, plus those of a second stream; 0 for tokenized documents."""
        return sum(f.size for f in self.features if f.name in ("input_ids", "target_ids"))

    def describe_files(self) -> str:
        """The formats of the files, and the encoding of rows in them."""
        formats = ", ".join(self.file_formats)
        return formats if self.holds_documents else f"{formats}; values as {self.encoding}"

    def feature(self, name: str) -> Feature:
        """The feature with this name, which must exist."""
        return {feature.name: feature for feature in self.features}[name]

    def codec(self, place: str = "the dataset") -> RowCodec:
        """The codec of these rows; `place` is the name of the dataset in errors.

        Raises:
          UsageError: the dataset has tokenized documents instead of rows.
        """
        if self.holds_documents:
            readers = (f"{name} by {DOCUMENT_FORMATS[name].reader}" for name in self.file_formats)
            raise UsageError(
                f"{place} has tokenized documents, not rows; others read them: "
                f"{', '.join(readers)}. For rows, build a dataset with a different task than "
                f"{self.task}"
            )
        return RowCodec(self.features, self.encoding)

    def copies_of(self, split: str) -> int:
        """Number of masked copies of each row of a split."""
        return self.mask_copies if is_training(split) else 1

    def shard_names(self, split: str) -> List[str]:
        """The names of a split's shards: ["train-00000-of-00002", "train-00001-of-00002"]."""
        count = self.shards[split]
        return [shard_name(split, index, count) for index in range(count)]

    @staticmethod
    def from_dict(values: Any, source: str) -> "Schema":
        """Converts parsed JSON; `source` is the name of the file in errors."""
        return from_json(Schema, values, source)

    def differences(self, other: "Schema") -> List[str]:
        """Settings of this stored schema that differ from `other`, the requested one.

        ["max_length: stored 128, requested 512"]
        """
        stored, requested = ({**asdict(s), **s.parameters} for s in (self, other))
        return setting_differences(stored, requested)


def setting_differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> List[str]:
    """Phrases for settings that differ, at most _SHOWN and a count of the rest.

    The task comes first, on which most others depend, then settings that both have; those that
    follow from others come last. Long values, such as features, are not printed.
    """
    names = {*stored, *requested} - {"parameters", "fingerprint"}
    names = {name for name in names if _plain(stored, name) != _plain(requested, name)}

    def rank(name: str) -> Tuple[bool, bool, bool, str]:
        is_in_both = name in stored and name in requested
        return name != "task", name in _DERIVED, not is_in_both, name

    ordered = sorted(names, key=rank)
    phrases = []
    for name in ordered[:_SHOWN]:
        old, new = _plain(stored, name), _plain(requested, name)
        short = len(old + new) <= _LONGEST_VALUES
        phrases.append(
            f"{name}: stored {old}, requested {new}" if short else f"{name}: a different value"
        )
    more = len(ordered) - _SHOWN
    return phrases + ([f"and {more} more settings"] if more > 0 else [])


def _plain(settings: Mapping[str, Any], name: str) -> str:
    return json.dumps(settings[name], sort_keys=True) if name in settings else "nothing"


def shard_name(split: str, index: int, count: int) -> str:
    """The name of a shard without extension: `train-00003-of-00016`."""
    return f"{split}-{index:05d}-of-{count:05d}"


@dataclass(frozen=True)
class InputFile:
    """An input file.

    Attributes:
      path: its path or URL.
      bytes: its stored size.
      digest: xxh3_128 of its content in ranges, hexadecimal.
    """

    path: str
    bytes: int
    digest: str

    def __post_init__(self) -> None:
        """Rejects an invalid size or digest."""
        check(self.bytes >= 0, "bytes", self.bytes, "must be at least 0")
        check_constraints(vars(self), {"digest": _DIGEST})


@dataclass(frozen=True)
class Inputs:
    """The input files of a dataset (inputs.json)."""

    files: Tuple[InputFile, ...]

    def content(self) -> List[Tuple[int, str]]:
        """Sizes and digests, sorted; they are equal for the same bytes under other names."""
        return sorted((file.bytes, file.digest) for file in self.files)

    @staticmethod
    def from_dict(values: Any, source: str) -> "Inputs":
        """Converts parsed JSON; `source` is the name of the file in errors."""
        return from_json(Inputs, values, source)
