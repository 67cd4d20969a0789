"""What adding documents to a set changes in it, and what keeping its tokens would save.

    python -m tests.benchmarks.added_documents --num_shards=64

A set is made of IMDB's training reviews, once, and again with some of the test reviews beside them,
by the functions of build_shards, without Beam. No document of a set is kept in it as it was read;
so example batches (tokens, routed, before they are packed) are what an --append would have to keep.
"""

import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from tests.benchmarks.corpora import reviews
from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.input_options import InputFlags
from textmill.pipelines.readers.sources import plan_blocks, read_block
from textmill.pipelines.rows.example_batch import join, keep, to_stream
from textmill.pipelines.runners.shuffle import ShuffleWriter
from textmill.pipelines.shards.options import BuildOptions, SplitFlags
from textmill.pipelines.shards.schema import schema_of
from textmill.pipelines.shards.steps import RowMaker, route_examples
from textmill.pipelines.shards.values import Splits
from textmill.pipelines.tasks.mlm import Mlm


@dataclass(frozen=True)
class Added:
    """Which set, and what comes to it."""

    tokenizer: str
    """A tokenizer.json."""
    num_shards: int = 64
    """Of the one split, train."""
    documents: tuple[int, ...] = (1, 10, 64, 100, 1000)
    """Added to it, in turn."""
    max_length: int = 128
    """Tokens a row."""


Shards = dict[int, tuple[str, set[bytes]]]  # by route: sha256 of its rows, and the rows


class Maker:
    """build_shards without Beam, its two halves apart."""

    def __init__(self, added: Added):
        """For one set."""
        options = BuildOptions[Mlm](
            reading=InputFlags(input=("text",)),
            tokenizer=added.tokenizer,
            output="set",
            max_length=added.max_length,
            splitting=SplitFlags(Splits({"train": 1}), added.num_shards),
            settings=Mlm(),
        )
        self._options = options
        self._tokenizer = load_tokenizer(added.tokenizer)
        self._schema = schema_of(options, self._tokenizer, {})

    def batches(self, path: Path) -> dict[int, list[bytes]]:
        """The first half: a file of a document a line, read, tokenized and routed."""
        (source,) = self._options.sources.values()
        source = type(source)((str(path),), "line", roles=source.roles)
        by_route: dict[int, list[bytes]] = defaultdict(list)
        for block in plan_blocks(source):
            held = ShuffleWriter("runner", "")
            for documents in read_block(block, source):
                task, schema = self._options.settings, self._schema
                routed = route_examples(documents, task, self._tokenizer, schema, "")
                held.add((route, examples.batch) for route, examples in routed.batches)
            for route, batch in held.take():
                by_route[route].append(to_stream(batch))
        return by_route

    def shards(self, by_route: dict[int, list[bytes]]) -> Shards:
        """The second half: rows of every shard, packed and masked."""
        task = self._options.settings
        maker = RowMaker(self._schema, task, task.finish(self._schema, self._tokenizer))
        made = {}
        for route, streams in by_route.items():
            examples = join(streams)
            if examples is not None:
                rows: set[bytes] = set()
                digest = sha256()
                for chunk in maker.make(keep(examples), "train").chunks():
                    digest.update(chunk.tobytes())
                    rows.update(map(bytes, chunk))
                made[route] = digest.hexdigest(), rows
        return made


def main(added: Added) -> None:
    """Prints the table."""
    old = [review["text"] for review in reviews("imdb/train")]
    new = sorted({review["text"] for review in reviews("imdb/test")} - set(old))
    console, maker = Console(width=100), Maker(added)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        write(path, old[:2000])
        maker.shards(maker.batches(path))  # compiles, and fills caches
        write(path, old)
        began = time.process_time()
        kept = maker.batches(path)
        read = time.process_time() - began
        began = time.process_time()
        before = maker.shards(kept)
        made = time.process_time() - began
        text_bytes = path.stat().st_size
        stored = sum(len(stream) for streams in kept.values() for stream in streams)
        console.print(
            f"{len(old):,} documents, {text_bytes / 1e6:.1f} MB, {len(before)} shards. Reading and "
            f"tokenizing: {read:.2f} s of CPU; joining, packing and masking: {made:.2f} s. "
            f"Example batches: {stored / 1e6:.1f} MB, {stored / text_bytes:.0%} of the text."
        )
        table = Table("documents added", "shards changed", "expected", "rows as before in these")
        for number in added.documents:
            write(path, new[:number])
            all_of = {route: list(streams) for route, streams in kept.items()}
            for route, streams in maker.batches(path).items():
                all_of.setdefault(route, []).extend(streams)
            after = maker.shards(all_of)
            changed = [route for route in after if after[route][0] != before[route][0]]
            same = sum(len(after[route][1] & before[route][1]) for route in changed)
            rows = sum(len(after[route][1]) for route in changed)
            expected = added.num_shards * (1 - (1 - 1 / added.num_shards) ** number)
            share = f"{same / max(rows, 1):.1%}"
            table.add_row(f"{number:,}", f"{len(changed)}", f"{expected:.1f}", share)
    console.print(table)


def write(path: Path, documents: list[str]) -> None:
    """A document a line."""
    path.write_text("".join(f"{document}\n" for document in documents), encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Added))
