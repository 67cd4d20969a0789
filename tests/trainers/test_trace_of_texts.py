"""Traces of runs on built datasets equal the documents decoded from the batches of all hosts.

Each document repeats one word of its own, so that any token of it names it.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
import pytest
import xxhash
from tokenizers import Tokenizer

from tests.tools.numpy_program import NumpyProgram, run_numpy
from tests.tools.shard_factory import tokenizer_json
from textmill.pipelines.build_corpus import main as build_corpus
from textmill.pipelines.build_shards import main as build_shards
from textmill.schemas.format import pieces
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.features import unmask
from textmill.trainers.data import shard_set
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.task_flags import ClmFlags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.run.journal import METRICS, MetricsFile
from textmill.trainers.run.plan import plan_run
from textmill.trainers.run.prepare import prepare_directory
from textmill.trainers.tf_classifier import TfClassifierFlags
from textmill.trainers.tf_qa import TfQaFlags
from textmill.trainers.trace import main as trace
from textmill.trainers.use.trace_reports import find_nothing, report_document, report_step
from textmill.trainers.use.traced_run import open_traced

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_picture")]
WORDS = 400
FIRST = 5  # id of the first word
SETS = {
    "mlm_best_fit": ("--task=mlm",),
    "mlm_concat": ("--task=mlm", "--packing=concat", "--no_static_masking"),
    "mlm_copies": ("--task=mlm", "--packing=none", "--mask_copies=3"),
    "clm_best_fit": ("--task=clm",),
    "clm_concat": ("--task=clm", "--packing=concat"),
    "clm_none": ("--task=clm", "--packing=none"),
    "classification": ("--task=classification",),
    "qa": (
        *("--task=qa", "--window_stride=8"),
        *("--max_question_length=4", "--max_answer_length=4"),
    ),
    "chat": ("--task=chat", "--chat_template={folder}/chat.jinja"),
    "span_corruption": ("--task=span_corruption", "--mean_span_length=3"),
}
CHAT = """{%- for message in messages -%}
{{ ('<mask> ' if message.role == 'user' else '<unk> ') + message.content + ' </s> ' }}
{%- endfor -%}{%- if add_generation_prompt -%}{{ '<unk> ' }}{%- endif -%}"""
STAGES = "0:clm_best_fit=0.7,clm_concat=0.3;9:clm_none=1;60%:clm_none=0.1,clm_concat=0.9"
MIXED = "{clm_best_fit}:0.5,{clm_concat}:0.2,{clm_none}:0.3"
RUNS = {  # name: --shards, hosts, other flags
    "mlm_best_fit": ("{mlm_best_fit}", 1, {}),
    "mlm_concat": ("{mlm_concat}", 1, {"seed": 7}),
    "mlm_copies": ("{mlm_copies}", 3, {}),
    "clm_best_fit": ("{clm_best_fit}", 3, {"epochs": 4.5}),
    "clm_concat": ("{clm_concat}", 1, {"epochs": 3}),
    "clm_none": ("{clm_none}", 1, {}),
    "mixture": (MIXED, 1, {"seed": 2}),
    "mixture_3": (MIXED, 3, {"tokens": 20_000}),
    "windowed": ("{clm_concat}", 3, {"order": "window", "epochs": 2.5}),
    "windowed_stages": (
        "{clm_best_fit},{clm_concat},{clm_none}",
        1,
        {"order": "window", "stages": STAGES},
    ),
    "classification": ("{classification}", 1, {"epochs": 2.5}),
    "qa": ("{qa}", 3, {}),
    "chat": ("{chat}", 1, {"order": "window"}),
    "span_corruption": ("{span_corruption}", 3, {"seed": 3}),
    "stages": ("{clm_best_fit},{clm_concat},{clm_none}", 3, {"stages": STAGES, "steps": 110}),
}


@pytest.fixture(scope="module", autouse=True)
def small_windows() -> Iterator[None]:
    """Datasets of many windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", 400)
        patch.setattr(shard_set, "WINDOW_PIECES", 3)
        yield


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> dict[str, str]:
    """Directories by name."""
    folder = tmp_path_factory.mktemp("sets")
    lengths = np.random.default_rng(0).integers(2, 60, WORDS).tolist()
    tokenizer = Tokenizer.from_str(tokenizer_json(FIRST + WORDS).decode())
    tokenizer.add_special_tokens([f"<extra_id_{number}>" for number in range(20)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat.jinja").write_text(CHAT)
    for task in ("text", *FIELDS):
        documents = [document_of(task, n, k) for n, k in enumerate(lengths)]
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{task}.jsonl").write_text(lines)
    found = {}
    for name, flags in SETS.items():
        found[name] = str(folder / name)
        build_shards(
            [
                f"--input={folder}/{name if name in FIELDS else 'text'}.jsonl",
                f"--tokenizer={folder}/tokenizer.json",
                f"--output={folder}/{name}",
                *("--max_length=32", "--num_shards=train:3,validation:1"),
                *(flag.format(folder=folder) for flag in flags),
            ]
        )
    return found


# The fields whose hashes, joined, are hashed.
FIELDS = {
    "classification": ("text", "label"),
    "qa": ("question", "context", "answers", "id"),
    "chat": ("messages", "tools"),
}


def document_of(task: str, number: int, length: int) -> dict[str, Any]:
    """The fields of a document that has no other word than its own."""
    word = f"w{FIRST + number}"
    text = " ".join([word] * length)
    if task == "qa":
        answers = [{"text": word, "answer_start": 0}]
        return {"id": str(number), "question": word, "context": text, "answers": answers}
    if task == "chat":
        turns = [("user", word), ("assistant", text)] * 2
        return {"messages": [{"role": role, "content": content} for role, content in turns]}
    return {"text": text, "label": str(number % 3)}


def digest_of(name: str, document: dict[str, Any]) -> str:
    """The digest of a document of a dataset."""
    if name == "qa":
        own = [{"text": one["text"], "start": one["answer_start"]} for one in document["answers"]]
        document = {**document, "answers": own}
    texts = [document.get(field, "") for field in FIELDS.get(name, ("text",))]
    parts = [(text if isinstance(text, str) else json.dumps(text)).encode() for text in texts]
    if len(parts) == 1:
        return xxhash.xxh3_128_hexdigest(parts[0])
    return xxhash.xxh3_128_hexdigest(b"".join(map(xxhash.xxh3_128_digest, parts)))


def digests_of(name: str, sets: dict[str, str]) -> dict[int, str]:
    """The digest of each document, by the id of its word."""
    path = Path(sets["clm_none"]).parent / f"{name if name in FIELDS else 'text'}.jsonl"
    lines = path.read_text().splitlines()
    return {FIRST + n: digest_of(name, json.loads(line)) for n, line in enumerate(lines)}


def decode(batch: dict[str, np.ndarray]) -> tuple[Counter[int], list[Counter[int]]]:
    """Tokens of each word's segments in a batch (0: of no word), and those of each row."""
    ids, segment_ids = unmask(batch), batch["segment_ids"]
    if "target_ids" in batch:
        ids = np.hstack([ids, batch["target_ids"]])
        segment_ids = np.hstack([segment_ids, batch["target_segment_ids"]])
    rows = []
    for own_ids, segments in zip(ids, segment_ids, strict=True):
        counts: Counter[int] = Counter()
        for segment in range(1, int(segments.max()) + 1):
            own = own_ids[segments == segment]
            words = own[(own >= FIRST) & (own < FIRST + WORDS)]
            counts[int(words[0]) if len(words) else 0] += len(own)
            assert len({*words.tolist()}) < 2
        rows.append(counts)
    return sum(rows, Counter()), rows


def read_of_hosts(flags: Any, steps: int, hosts: int) -> Iterator[dict[str, np.ndarray]]:
    """The batches of all hosts, put together."""
    parts = [
        flags.open().batches(
            flags.data.train_split,
            batch_size=flags.compute.batch_size,
            seed=flags.compute.seed,
            stop_step=steps,
            process_index=index,
            process_count=hosts,
            prefetch=0,
        )
        for index in range(hosts)
    ]
    for batches in zip(*parts, strict=True):
        yield {name: np.concatenate([one[name] for one in batches]) for name in batches[0]}


def check(run: Path, seen: dict[int, dict[str, np.ndarray]], digests: dict[int, str]) -> None:
    """Compares the traces of 120 steps and 120 documents with what was seen."""
    traced, choose = open_traced(str(run)), random.Random(1)
    assert traced.steps == max(seen)
    steps_of: dict[str, Counter[int]] = {digest: Counter() for digest in digests.values()}
    odd = 0
    for step, batch in seen.items():
        for row in decode(batch)[1]:
            odd += row[0]
            for word in row.keys() - {0}:
                steps_of[digests[word]][step] += 1
    for step in choose.sample(sorted(seen), min(120, len(seen))):
        counts = decode(seen[step])[0]
        unknown = counts.pop(0, 0)
        due = {digests[word]: count for word, count in counts.items()}
        report = report_step(traced, step, find_nothing)
        found = {one["document"]: one["tokens"] for one in report["documents"]}
        if not unknown:
            assert found == due
        assert all(found[digest] >= count for digest, count in due.items())
        assert sum(found.values()) == sum(due.values()) + unknown == report["tokens"]
    chosen = choose.sample(sorted(steps_of), 120)
    listed = Digests(b"".join(map(bytes.fromhex, [*chosen, "ab" * 16])))
    assert traced.sightings_of(listed) == {
        digest: traced.sightings(digest)
        for digest in map(bytes.fromhex, sorted(chosen))
        if traced.has(digest)
    }
    for digest in chosen:
        report = report_document(traced, bytes.fromhex(digest), find_nothing)
        found = Counter({one["step"]: len(one["rows"]) for one in report["steps"]})
        assert found == steps_of[digest] or (odd and found > steps_of[digest])


@dataclass(frozen=True)
class SpanTask(ClmFlags):
    """No trainer here trains on these rows; users' own do."""

    rows: ClassVar[str] = "span_corruption"


@dataclass(frozen=True)
class SpanFlags(FlaxClmFlags):
    """The flags of such a trainer."""

    task: SpanTask = SpanTask()


FLAGS = {
    "mlm": FlaxMlmFlags,
    "qa": TfQaFlags,
    "classification": TfClassifierFlags,
    "span": SpanFlags,
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_all_tasks_and_packings(sets, tmp_path, name):
    shards, hosts, settings = RUNS[name]
    kind = FLAGS.get(name.split("_")[0], FlaxClmFlags)
    given = {"steps": 120, "batch_size": 6} if not settings.keys() & {"epochs", "tokens"} else {}
    given = {"batch_size": 6, "model": "tiny", **given, **settings}
    output = tmp_path / "run"
    flags = make_flags(kind, shards=shards.format(**sets), output=str(output), **given)
    output.mkdir()
    opened = flags.open()
    for part in getattr(opened, "parts", [opened]) if "order" in settings else []:
        assert len(part._windows["train"].rows_P) > 30
    plan, _ = plan_run(flags, opened, print)
    prepare_directory(plan, opened, print)
    metrics, seen = MetricsFile(str(output / METRICS)), {}
    for step, batch in enumerate(read_of_hosts(flags, plan.steps, hosts), 1):
        seen[step] = batch
        metrics.write({"kind": "train", "step": step, "loss": 1.0})
    metrics.close()
    check(output, seen, digests_of(name, sets))


def test_a_resumed_run_over_several_epochs(sets, tmp_path, monkeypatch):
    """Interrupted between checkpoints; what came after the checkpoint is done again."""
    seen, train = {}, NumpyProgram.train

    def record(self, placed, step):
        seen[step + 1] = batches[step]
        np.testing.assert_array_equal(placed["input_ids"], batches[step]["input_ids"])
        return train(self, placed, step)

    settings: Any = {"steps": 130, "learning_rate": 0.01, "evaluate_every": 50}
    flags = make_flags(FlaxClmFlags, shards=sets["clm_best_fit"], batch_size=4)
    batches = list(read_of_hosts(flags, 130, 1))
    monkeypatch.setattr(NumpyProgram, "train", record)
    for stop in (31, 77, 130):
        run_numpy(
            sets["clm_best_fit"], tmp_path / "run", stop_after=stop, resume=stop > 31, **settings
        )
        check(tmp_path / "run", seen, digests_of("clm_best_fit", sets))


PLACES = ("a.example", "b.example")


def test_texts_and_sources_of_a_corpus(sets, tmp_path, capfd):
    """A dataset is built from a corpus, trained on and traced, each by its command."""
    tokenizer = Path(sets["clm_none"]).parent / "tokenizer.json"
    pages = {
        " ".join([f"w{FIRST + n}"] * (n + 3)): f"https://{PLACES[n % 2]}/{n}" for n in range(20)
    }
    lines = [json.dumps({"text": text, "url": url}) + "\n" for text, url in pages.items()]
    (tmp_path / "pages.jsonl").write_text("".join(lines))
    outputs = [f"--output={tmp_path / name}" for name in ("corpus", "shards")]
    build_corpus([f"--input={tmp_path}/pages.jsonl", "--keep_fields=url", outputs[0]])
    flags = [f"--input={tmp_path}/corpus", f"--tokenizer={tokenizer}", "--task=clm"]
    build_shards([*flags, "--max_length=32", "--splits=train:0.8,validation:0.2", outputs[1]])
    run_numpy(str(tmp_path / "shards"), tmp_path / "run", steps=4, batch_size=2)
    capfd.readouterr()

    def traced(*flags: str) -> str:
        trace([str(tmp_path / "run"), *flags])
        return capfd.readouterr().out

    corpus = f"--corpus={tmp_path / 'corpus'}"
    report = json.loads(traced("--step=2", corpus, "--json"))
    for one in report["documents"]:
        assert xxhash.xxh3_128_hexdigest(one["text"].encode()) == one["document"]
        assert one["url"] == pages[one["text"]]
    [seen, *_] = report["documents"]
    assert f"{seen['url']}  {seen['text'][:20]}" in traced("--step=2", corpus)
    report = json.loads(traced("--steps=1:4", "--above=0", corpus, "--json"))
    tokens = Counter({place: 0 for place in PLACES})
    for one in report["documents"]:
        tokens[urlsplit(one["url"]).netloc] += one["tokens"]
    assert {one["name"]: one["tokens"] for one in report["sources"]} == tokens
    assert tokens.total() == report["tokens"]
    (tmp_path / "page.txt").write_text(seen["text"] + "\n")
    by_text = json.loads(traced(f"--text={tmp_path / 'page.txt'}", corpus, "--json"))
    assert by_text == json.loads(traced(f"--document={seen['document']}", corpus, "--json"))
    assert (by_text["url"], by_text["text"]) == (seen["url"], seen["text"])
    assert 2 in [one["step"] for one in by_text["steps"]]
    (tmp_path / "list.txt").write_text(f"{seen['document']}\n")
    [listed] = json.loads(traced(f"--forgotten={tmp_path / 'list.txt'}", corpus, "--json"))[
        "documents"
    ]
    assert (listed["url"], 2 in listed["steps"]) == (seen["url"], True)
