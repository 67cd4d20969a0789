"""The command line of build_shards -> frozen configuration that refuses."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import tyro

from pipelines.documents import Role
from pipelines.sources import Source
from pipelines.tokenization import LoadedTokenizer
from schemas.errors import UsageError
from schemas.features import MAX_TOKENS, max_masked_slots, task_features
from schemas.records import FORMATS
from schemas.sidecar import FORMAT_VERSION, Schema
from schemas.version import VERSION

N = TypeVar("N", int, float)
_SHARD_BYTES = 32 << 20  # of input, a shard: a second of work; some for every core of a laptop
_MOST_SHARDS_BITS = 16  # 65,536: 10 TB in shards of 160 MB


@dataclass(frozen=True)
class BuildOptions:
    """Text in, packed and masked shards out.

    Flags that are not listed here go to Beam (--runner=..., --direct_num_workers=...).
    """

    input: Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
    """Files to read: a path or a glob; may be given more than once. Text or JSON Lines, plain or
    .gz, .zst, .bz2, .xz."""
    tokenizer: str
    """A tokenizer.json, or a directory that holds one (or vocab.json and merges.txt)."""
    output: str
    """The directory of the shard set."""
    task: Literal["mlm"] = "mlm"
    """What the rows are for."""
    max_length: int = 128
    """Tokens a row."""
    document: Literal["line", "paragraph", "file"] = "line"
    """What is a document in a text file."""
    text_field: str = "text"
    """The field with the text in JSON Lines."""
    splits: str = "train:0.98,validation:0.02"
    """Names and shares; a document's content decides where it goes."""
    num_shards: str = "auto"
    """Shards of the largest split (others in proportion), or name:number for each split."""
    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """best_fit: documents whole, rows full. concat: one stream, cut. none: a piece a row."""
    static_masking: bool = True
    """Write masks into the rows. Without, trainers mask as they go."""
    mask_rate: float = 0.15
    """Share of a row's ordinary tokens that is masked."""
    whole_word_masking: bool = False
    """Mask all tokens of a word or none."""
    mask_copies: int = 1
    """Differently masked copies of every row."""
    seed: int = 0
    """Of every random choice."""
    file_format: Literal["array_record", "tfrecord", "both"] = "array_record"
    """ArrayRecord for random access, TFRecord for tf.data."""
    encoding: Literal["bytes", "int64_list"] = "bytes"
    """How a feature is stored in tf.train.Example: one blob, or the classic list."""
    exchange: Literal["auto", "files", "runner"] = "auto"
    """What carries tokens from blocks to shards: scratch files on one machine, or the runner."""
    max_rejects: int = 1000
    """Fail if more documents than this are refused; -1 for no limit."""
    overwrite: bool = False
    """Replace what another run left in the output directory."""
    dry_run: bool = False
    """Print the plan and stop."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        if not 1 <= self.max_length < MAX_TOKENS:
            raise UsageError(f"--max_length={self.max_length}: from 1 to {MAX_TOKENS - 1}")
        if not 0 < self.mask_rate < 1:
            raise UsageError(
                f"--mask_rate={self.mask_rate}: a share between 0 and 1; for rows without masks "
                "give --no_static_masking"
            )
        if self.mask_copies < 1:
            raise UsageError(f"--mask_copies={self.mask_copies}: at least 1")
        if self.mask_copies > 1 and not self.static_masking:
            raise UsageError("--mask_copies makes equal rows without static masking: drop one")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"--seed={self.seed}: from 0 to 2**64 - 1")
        self.source()
        self.shares()
        self.shards(0)

    def source(self) -> Source:
        """What to read."""
        roles = (Role("text", "string", self.text_field),)
        return Source(self.input, document=self.document, roles=roles)

    def shares(self) -> dict[str, float]:
        """--splits, parsed: {"train": 0.98, "validation": 0.02}."""
        shares = {
            name: _number(float, "--splits", self.splits, share)
            for name, share in _pairs("--splits", self.splits)
        }
        for name, share in shares.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise UsageError(f"--splits={self.splits}: the name {name!r} is not like train_2")
            if share <= 0:
                raise UsageError(f"--splits={self.splits}: the share of {name} is not above 0")
        if abs(sum(shares.values()) - 1) > 1e-9:
            raise UsageError(
                f"--splits={self.splits}: the shares add up to {sum(shares.values()):g}, not to 1"
            )
        return dict(sorted(shares.items()))  # the order of the flag means nothing

    def shards(self, total_bytes: int) -> dict[str, int]:
        """Number of shards of each split.

        Args:
          total_bytes: of the inputs; decides with --num_shards=auto.
        """
        shares = self.shares()
        if ":" in self.num_shards:
            counts = {
                name: _number(int, "--num_shards", self.num_shards, count)
                for name, count in _pairs("--num_shards", self.num_shards)
            }
            if set(counts) != set(shares):
                raise UsageError(
                    f"--num_shards={self.num_shards} names {', '.join(counts)}, where the splits "
                    f"are {', '.join(shares)}"
                )
        else:
            largest = max(shares.values())
            most = (
                _auto_shards(total_bytes)
                if self.num_shards == "auto"
                else _number(int, "--num_shards", self.num_shards, self.num_shards)
            )
            counts = {
                name: max(1, round(most * share / largest)) if most > 0 else most
                for name, share in shares.items()
            }
        if not all(1 <= count <= 99_999 for count in counts.values()):
            raise UsageError(f"--num_shards={self.num_shards}: from 1 to 99999")
        return counts

    def schema(self, tokenizer: LoadedTokenizer, total_bytes: int) -> Schema:
        """The contract of the set that these options make.

        Raises:
          UsageError: the tokenizer does not fit the task, or a row does not hold its specials.
        """
        if self.static_masking and "mask" not in tokenizer.special_ids:
            raise UsageError(
                f"the tokenizer {self.tokenizer} has no mask token, which --task=mlm needs: train "
                "one with <mask> among --special_tokens, or give --no_static_masking"
            )
        added = len(tokenizer.prefix_ids) + len(tokenizer.suffix_ids)
        if self.max_length <= added:
            raise UsageError(
                f"--max_length={self.max_length} has no place for text: the tokenizer adds {added} "
                f"special tokens to each segment; give at least {added + 1}"
            )
        slots = max_masked_slots(self.max_length, self.mask_rate) if self.static_masking else 0
        return Schema(
            format_version=FORMAT_VERSION,
            task=self.task,
            parameters={"document": self.document, "text_field": self.text_field},
            max_length=self.max_length,
            vocab_size=tokenizer.vocab_size,
            special_ids=dict(tokenizer.special_ids),
            all_special_ids=tuple(tokenizer.all_special_ids),
            tokenizer_sha256=tokenizer.sha256,
            golden=tokenizer.golden,
            packing=self.packing,
            static_masking=self.static_masking,
            mask_rate=self.mask_rate,
            whole_word_masking=self.whole_word_masking and self.static_masking,
            mask_copies=self.mask_copies,
            max_masked=slots,
            splits=self.shares(),
            shards=self.shards(total_bytes),
            seed=self.seed,
            encoding=self.encoding,
            file_formats=FORMATS if self.file_format == "both" else (self.file_format,),
            features=task_features(
                self.task,
                max_length=self.max_length,
                vocab_size=tokenizer.vocab_size,
                max_masked=slots,
            ),
            code_version=VERSION,
        )


def _auto_shards(total_bytes: int) -> int:
    """A power of two: it does not waver when inputs gain or lose a line end."""
    wanted = max(0, total_bytes - 1) // _SHARD_BYTES
    return 1 << min(wanted.bit_length(), _MOST_SHARDS_BITS)


def _pairs(flag: str, text: str) -> list[tuple[str, str]]:
    """`a:1,b:2` -> [("a", "1"), ("b", "2")]."""
    pairs = []
    for item in text.split(","):
        name, colon, value = item.strip().partition(":")
        if not colon or not name or not value:
            raise UsageError(f"{flag}={text}: {item!r} is not name:number, as in train:0.98")
        if name in dict(pairs):
            raise UsageError(f"{flag}={text}: {name} is there twice")
        pairs.append((name, value))
    return pairs


def _number(kind: Callable[[str], N], flag: str, text: str, value: str) -> N:
    try:
        return kind(value)
    except ValueError as error:
        raise UsageError(f"{flag}={text}: {value!r} is not a number") from error
