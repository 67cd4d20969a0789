"""Changes every field of every metadata file of small sets and checks what their readers do.

    python -m tests.stress.mutate_sets --tasks=mlm,clm --mutations=10000 --seed=1
    python -m tests.stress.mutate_sets --set=DIR

A field is dropped, made null, given another type, another number, 0, a negative or huge one, NaN,
nothing, another text, half a character, control characters, or a value nested without end, or its
key stands twice: as it is ("plain"), with the sums and the digest of MANIFEST.json made right
("signed"), and with what follows from other fields (the fingerprint, the sums of stats.json) made
right too ("forged"). Each changed set is opened in a process of its own by ShardSet, which reads
its first batch, by verify, inspect_shards, export, and by the start of the task's trainers.

Exit code 1 if one of them took rows or meaning that were not published, showed a traceback, found
no end, or took more than 100 MB.
"""

import argparse
import copy
import hashlib
import io
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from schemas.records import DOCUMENT_FORMATS
from schemas.statistics import HISTOGRAMS
from tests.tools.places import CHAT_TEMPLATE

LEVELS = ("plain", "signed", "forged")
METADATA_FILES = (
    "MANIFEST.json",
    "config.yaml",
    "dataset_info.json",
    "features.json",
    "inputs.json",
    "schema.json",
    "stats.json",
)
CPU_SECONDS, WALL_SECONDS, MEGABYTES = 10, 120, 100
ROOM = 3 << 29  # bytes of address space that a child may ask for beyond its own

# Fields that nothing in a set says a second time: with all sums right it is another set, as good as
# the first. Readers of rows use none of them. By the beginning of "file: field".
STATED_ONCE = {
    "inputs.json": "where the text was; the files that it names are not part of the set",
    "schema.json: mask_rate": "rows hold the masks; max_masked follows from it",
    "schema.json: mask_unit": "rows hold the masks",
    "schema.json: packing": "rows hold the segments; one that is none is checked",
    "schema.json: parameters": "rows hold what they made; those that readers use have kinds",
    "schema.json: seed": "of choices that rows hold",
    "stats.json: documents_guarded": "how many documents took the slow way; both give equal ids",
    "stats.json: source_bytes": "of the inputs, which are not there to be measured",
    "stats.json: shards.*.text_bytes": "of the documents; rows hold their tokens",
    "stats.json: shards.*.words": "of the documents; rows hold their tokens",
}
# Fields that schema.json alone gives a reader of rows: what else has them (the files for TensorFlow
# Datasets, tokenizer.json, the rows) is not read at opening, but by verify.
BY_VERIFY = {
    "schema.json: all_special_ids": "tokenizer.json",
    "schema.json: code_version": "dataset_info.json",
    "schema.json: features.*.meaning": "features.json",
    "schema.json: golden": "tokenizer.json",
    "schema.json: special_ids": "tokenizer.json",
}
FLAGS = {
    "mlm": ["--mask_copies=2"],
    "mlm_dynamic": ["--task=mlm", "--no_static_masking"],
    "clm": ["--task=clm"],
    "classification": ["--task=classification"],
    "qa": ["--task=qa", "--max_question_length=12", "--max_answer_length=8"],
    "span_corruption": ["--task=span_corruption"],
    "chat": ["--task=chat", f"--chat_template={CHAT_TEMPLATE}"],
    "tokens": ["--task=tokens", f"--file_format={','.join(DOCUMENT_FORMATS)}"],
}


# Sets to change


def build_sets(folder: Path, tasks: list[str]) -> dict[str, Path]:
    """A small set of each task, in both formats."""
    from pipelines.build_shards import main

    tokenizer, text = folder / "tokenizer.json", folder / "text.jsonl"
    _write_inputs(tokenizer, text)
    made = {}
    for task in tasks:
        made[task] = folder / task
        flags = [f"--input={text}", f"--tokenizer={tokenizer}", f"--output={made[task]}"]
        flags += ["--max_length=64", "--file_format=both", "--splits=train:0.7,validation:0.3"]
        with redirect_stdout(io.StringIO()):
            main([*flags, "--num_shards=train:2,validation:1", *FLAGS[task]])
    return made


def _write_inputs(tokenizer: Path, text: Path) -> None:
    """Documents that all tasks can use, and a tokenizer with what all tasks need."""
    from tests.tools.tokenizer_factory import TEXT, trained_tokenizer

    trained = trained_tokenizer()
    trained.add_special_tokens([f"<extra_id_{n}>" for n in range(20)])
    trained.save(str(tokenizer))
    words = " ".join(TEXT).split()
    chosen = random.Random(0)
    with text.open("w") as file:
        for number in range(60):
            said = " ".join(chosen.choices(words, k=chosen.randint(5, 30)))
            answer = {"text": [said.split()[2]], "answer_start": [said.index(said.split()[2])]}
            line = {"text": said, "context": said, "question": f"What is {number}?"}
            messages = (("user", line["question"]), ("assistant", said))
            line |= {"messages": [{"role": r, "content": c} for r, c in messages]}
            line |= {"answers": answer, "label": ["neg", "pos"][number % 2], "id": str(number)}
            file.write(json.dumps(line) + "\n")


# Mutations


@dataclass(frozen=True)
class Mutation:
    """One change of one field.

    Attributes:
      file: of the set.
      path: of the field in it: ("files", 3, "rows").
      kind: what becomes of it.
      level: what else is made right.
    """

    file: str
    path: tuple
    kind: str
    level: str

    @property
    def field(self) -> str:
        """`stats.json: shards.*.rows`: indices and names of shards are all one."""
        parts = ["*" if _is_name_of_many(self.path, i) else p for i, p in enumerate(self.path)]
        return f"{self.file}: {'.'.join(map(str, parts))}"


def _is_name_of_many(path: tuple, index: int) -> bool:
    return isinstance(path[index], int) or (index == 1 and path[0] in ("shards",))


_DEEP, _TWICE = "__deep__", "__twice__"
KINDS: dict[str, Callable[[Any], Any]] = {
    "drop": lambda v: None,
    "null": lambda v: None,
    "other type": lambda v: [v] if not isinstance(v, list) else {"a": v},
    "text": lambda v: str(v),
    "bool": lambda v: True,
    "other number": lambda v: v + 1 if isinstance(v, int) else (v or 1) / 2,
    "0": lambda v: 0,
    "negative": lambda v: -1,
    "2**31": lambda v: 2**31,
    "2**63": lambda v: 2**63,
    "1e30": lambda v: 1e30,
    "NaN": lambda v: math.nan,
    "infinite": lambda v: math.inf,
    "empty": lambda v: type(v)(),
    "other text": lambda v: v + "x",
    "half a character": lambda v: "\ud800",
    "control characters": lambda v: "\x1b[31m\x00\n",
    "path": lambda v: "../../etc/passwd",
    "deep": lambda v: _DEEP,
    "twice": lambda v: _TWICE,
}
_ONLY = {
    "other number": (int, float),
    "empty": (str, list, dict),
    "other text": (str,),
    "path": (str,),
}


def mutations(directory: Path) -> list[Mutation]:
    """All changes of all fields; of a list's items all, too."""
    found = []
    for name in METADATA_FILES:
        if not (directory / name).exists():
            continue
        for path, value in _fields(_load(directory / name)):
            for kind in KINDS:
                if kind == "0" and value == 0:
                    continue  # 0 for 0.0: another spelling, which JSON has
                if isinstance(value, _ONLY.get(kind, object)) and type(value) is not bool:
                    found += [Mutation(name, path, kind, level) for level in LEVELS]
    return found


def in_turn(found: list[Mutation], seed: int) -> list[Mutation]:
    """Shuffled, and every kind of change of every field once before any comes again."""
    random.Random(seed).shuffle(found)
    times: Counter = Counter()
    turns = []
    for mutation in found:
        same = (mutation.field, mutation.kind, mutation.level)
        turns.append(times[same])
        times[same] += 1
    return [found[i] for i in sorted(range(len(found)), key=turns.__getitem__)]


def _fields(value: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key), item
        if isinstance(item, dict | list):
            yield from _fields(item, (*path, key))


def _load(path: Path) -> Any:
    text = path.read_text()
    return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)


def apply(mutation: Mutation, directory: Path) -> bool:
    """Changes a set; False if this changes nothing."""
    path = directory / mutation.file
    before = _load(path)
    values = copy.deepcopy(before)
    holder = values
    for key in mutation.path[:-1]:
        holder = holder[key]
    key = mutation.path[-1]
    if mutation.kind == "drop":
        del holder[key]
    elif mutation.kind == "twice":
        if not isinstance(holder, dict):
            return False
        holder[_TWICE] = copy.deepcopy(holder[key])
    else:
        holder[key] = KINDS[mutation.kind](holder[key])
    text = _text(values, key)
    if text == _text(before, key):
        return False
    if mutation.file == "MANIFEST.json":
        if mutation.level != "plain":
            text = _text(_signed(values), key)
        _replace(path, text.encode("utf-8", "surrogatepass"))
        return mutation.level != "forged"
    if path.suffix == ".yaml":
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    if mutation.level == "forged":
        if mutation.file not in ("schema.json", "stats.json"):
            return False
        forge = _forge_schema if mutation.file == "schema.json" else _forge_stats
        try:
            text = _text(forge(values), key)
            if text == _text(before, key):
                return False
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            return False
    _replace(path, text.encode())
    if mutation.level != "plain":
        _sign(
            directory, mutation.file, values.get("fingerprint") if path.stem == "schema" else None
        )
    return True


def _text(values: Any, key: Any) -> str:
    text = json.dumps(values, sort_keys=True)
    text = text.replace(f'"{_DEEP}"', "[" * 700 + "]" * 700)
    return text.replace(f'"{_TWICE}"', json.dumps(key))


def _canonical(values: dict) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _signed(manifest: Any) -> Any:
    if isinstance(manifest, dict) and "digest" in manifest and _TWICE not in manifest:
        del manifest["digest"]
        manifest["digest"] = _canonical(manifest)
    return manifest


def _sign(directory: Path, name: str, fingerprint: Any) -> None:
    path = directory / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    content = (directory / name).read_bytes()
    for file in manifest["files"]:
        if file["path"] == name:
            file.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    if isinstance(fingerprint, str):
        manifest["fingerprint"] = fingerprint
    _replace(path, json.dumps(_signed(manifest), sort_keys=True).encode())


def _forge_schema(values: dict) -> dict:
    del values["fingerprint"]
    values["fingerprint"] = _canonical(values)
    return values


def _forge_stats(values: dict) -> dict:
    """Sums and densities follow from the counts of the shards."""
    splits: dict[str, list] = {}
    for name, shard in values["shards"].items():
        splits.setdefault(name.rsplit("-", 3)[0], []).append(shard)
    values["splits"] = {name: _dense(shards, values) for name, shards in splits.items()}
    values["total"] = _dense(list(values["shards"].values()), values)
    return values


def _dense(shards: list[dict], values: dict) -> dict:
    total: dict[str, Any] = {
        name: sum(shard[name] for shard in shards)
        for name in shards[0]
        if name not in ("labels", *HISTOGRAMS)
    }
    for name in HISTOGRAMS:
        total[name] = [sum(bins) for bins in zip(*(s[name] for s in shards), strict=True)]
    total["labels"] = dict(sum((Counter(shard["labels"]) for shard in shards), Counter()))
    places = total["rows"] * values["row_tokens"]
    total["packing_efficiency"] = round(total["tokens_in_rows"] / places, 6) if places else 0.0
    return total


def _replace(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # a link: what it leads to stays as it is
    path.write_bytes(content)


# Openers: each gives what it made of the set, as text


def open_shard_set(directory: str, task: str) -> str:
    """Rows and contract as a training loop sees them."""
    from trainers.reader import ShardSet

    shards = ShardSet(directory)
    told = [repr(shards.schema), repr(shards.stats), str(shards.splits)]
    for split in shards.splits:
        told.append(f"{split} {shards.rows(split)}")
        if shards.rows(split):
            batch = next(shards.batches(split, batch_size=4, seed=0, prefetch=0))
            told += [f"{name} {values.tobytes().hex()}" for name, values in sorted(batch.items())]
    shards.close()
    # What says whose set it is changes with any field.
    return "\n".join(told).replace(shards.fingerprint, "")


def open_verify(directory: str, task: str) -> str:
    """What verify counts."""
    from pipelines.inspection.checks.set_check import verify_set
    from schemas.errors import DataError

    report = verify_set(directory, on_bytes=lambda number: None)
    if report.problems:
        raise DataError(report.problems[0])
    return f"{report.rows} rows, {report.tokens} tokens, {report.notes}"


def open_inspect(directory: str, task: str) -> str:
    """What inspect_shards prints of a row."""
    from pipelines.inspect_shards import main

    os.environ["COLUMNS"] = "1000"  # so that no path is cut into lines
    shown = io.StringIO()
    with redirect_stdout(shown):
        main([directory])
    words = " ".join(shown.getvalue().split())
    return re.sub(r"[\d.,]+ (k|M)?(B|bytes)", "", words)  # of the metadata files themselves


def open_export(directory: str, task: str) -> str:
    """What export writes."""
    from pipelines.export import main
    from pipelines.inspection.export_set import RECORD

    output = Path(directory + ".export")
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main([directory, "--to=jsonl", f"--output={output}"])
        files = (path for path in sorted(output.iterdir()) if path.is_file())
        return str([(p.name, p.read_bytes()) for p in files if p.name not in (RECORD, ".lock")])
    finally:
        shutil.rmtree(output, ignore_errors=True)


def open_trainer(directory: str, task: str) -> str:
    """What the trainers of the task make of the contract, up to what they would compile."""
    from trainers import flax_clm, flax_mlm, poptorch_classifier, tf_classifier, tf_qa
    from trainers.data.mixture import open_shards
    from trainers.flags.command_line import make_flags
    from trainers.models.plan_model import plan_model

    shards = open_shards(directory)
    schema, plans = shards.schema, []
    for entry in (flax_mlm, flax_clm, tf_classifier, tf_qa, poptorch_classifier):
        trainer, where = entry.TRAINER, {"shards": directory, "output": directory + ".run"}
        flags = make_flags(trainer.flags, **where, steps=1)
        if task.replace("chat", "clm").startswith(flags.task.rows):  # whose rows are alike
            steps = flags.plan_steps(shards)
            trainer.make_task(flags, schema, shards).prepare_training(shards)
            plans.append((plan_model(flags, schema).config, steps, schema))
    return repr(plans or schema).replace(directory, "").replace(shards.fingerprint, "")


OPENERS = {
    "ShardSet": open_shard_set,
    "verify": open_verify,
    "inspect_shards": open_inspect,
    "export": open_export,
    "trainers": open_trainer,
}
OF_DOCUMENTS = {"verify", "inspect_shards"}  # the others refuse sets of whole documents


# Judging


def in_child(directory: str, task: str) -> dict[str, tuple[str, str]]:
    """Opener to what became of it: ("refused" or "opened" or "traceback" or ..., what it told)."""
    read, write = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(read)
            with os.fdopen(write, "w", errors="backslashreplace") as file:
                _open_all(directory, task, file)
            status = 0
        finally:
            os._exit(status)  # whatever happened: the parent's own work is not the child's
    os.close(write)
    with os.fdopen(read) as file:
        lines = file.read().splitlines()
    _, status, _ = os.wait4(process, 0)
    found = {name: (outcome, told) for name, outcome, told in map(json.loads, lines)}
    if status:
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else status
        name = next(name for name in OPENERS if name not in found)
        hung = ended in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL)
        found[name] = ("hang" if hung else "traceback", f"ended by signal {ended}")
    return found


def _open_all(directory: str, task: str, results: Any) -> None:
    """Runs in the child: a line for each opener."""
    with open("/proc/self/statm") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + ROOM, own + ROOM))
    never = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for name, opener in OPENERS.items():
        spent = math.ceil(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, never))
        signal.alarm(WALL_SECONDS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome, told = _outcome(opener, directory, task)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        if grown > MEGABYTES:
            outcome, told = "memory", f"{grown:.0f} MB more: {outcome}: {told}"
        results.write(json.dumps([name, outcome, told]) + "\n")
        results.flush()


def _outcome(opener: Callable[[str, str], str], directory: str, task: str) -> tuple[str, str]:
    from schemas.errors import TextmillError

    try:
        with redirect_stderr(io.StringIO()):
            return "opened", hashlib.sha256(
                opener(directory, task).replace(directory, "").encode("utf-8", "backslashreplace")
            ).hexdigest()
    except TextmillError as error:
        return "refused", str(error).replace(directory, "DIR")
    except SystemExit as error:
        return "traceback", f"exit {error.code}"
    except MemoryError:
        return "memory", "MemoryError"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"


def judge(
    mutation: Mutation,
    found: dict[str, tuple[str, str]],
    good: dict[str, tuple[str, str]],
) -> str:
    """One word for what the openers made of a changed set."""
    outcomes = {outcome for outcome, _ in found.values()}
    for bad in ("traceback", "hang", "memory"):
        if bad in outcomes:
            return bad
    otherwise = [n for n, (outcome, told) in found.items() if (outcome, told) != good[n]]
    otherwise = [name for name in otherwise if found[name][0] == "opened"]
    if outcomes == {"refused"}:
        return "refused"
    if not otherwise:
        return "by verify" if found["verify"][0] == "refused" else "the same"
    if _listed(mutation, STATED_ONCE):
        return "stated once"
    if found["verify"][0] == "refused" and _listed(mutation, BY_VERIFY):
        return "by verify"
    return "OTHERWISE"


def _listed(mutation: Mutation, fields: dict[str, str]) -> bool:
    return any(mutation.field.startswith(field) for field in fields)


WORDS = (
    "refused",
    "the same",
    "by verify",
    "stated once",
    "OTHERWISE",
    "traceback",
    "hang",
    "memory",
)
BAD = WORDS[-4:]


def mutate(
    directory: Path, task: str, number: int, seed: int, say: Callable[[str], None]
) -> dict[str, Counter]:
    """Level to counts of the words for so many mutations of a set, chosen by `seed`."""
    chosen = in_turn(mutations(directory), seed)
    counts = {level: Counter() for level in LEVELS}
    for name, opener in OPENERS.items():  # what they import is there before the fork
        if task != "tokens" or name in OF_DOCUMENTS:
            opener(str(directory), task)
    good = in_child(str(directory), task)
    opened = {name for name, (outcome, _) in good.items() if outcome == "opened"}
    if opened != (OF_DOCUMENTS if task == "tokens" else set(OPENERS)):
        raise SystemExit(f"{directory} is no good set: {good}")
    told: Counter = Counter()
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        done = 0
        for mutation in chosen:
            if done == number:
                break
            copied = Path(folder, "set")
            shutil.copytree(directory, copied, copy_function=os.link)
            if apply(mutation, copied):
                done += 1
                found = in_child(str(copied), task)
                word = judge(mutation, found, good)
                counts[mutation.level][word] += 1
                if word in BAD or word in ("by verify", "stated once"):
                    told[word, mutation.field] += 1
                if word in BAD and told[word, mutation.field] <= 2:
                    odd = {n: f for n, f in found.items() if f != good[n] and f[0] != "refused"}
                    say(f"{word}: {task}: {mutation}: {odd!r:.600}")
            shutil.rmtree(copied)
    for (word, field), times in sorted(told.items()):
        if word not in BAD:
            say(f"{word}: {task}: {field} ({times})")
    return counts


def main() -> None:
    """Prints what was found, and a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", default=",".join(FLAGS))
    parser.add_argument("--set", help="a set that is there, in place of those of --tasks")
    parser.add_argument("--task", default="span_corruption", help="whose trainers open --set")
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        if options.set:
            source = {options.task: Path(shutil.copytree(options.set, Path(folder, "set")))}
        else:
            source = build_sets(Path(folder), options.tasks.split(","))
        for reason in (f"{field}: {why}" for field, why in {**STATED_ONCE, **BY_VERIFY}.items()):
            print("listed:", reason)
        for task, directory in source.items():
            began = time.monotonic()
            counts = mutate(directory, task, options.mutations, options.seed, print)
            for level in LEVELS:
                row = ", ".join(f"{counts[level][word]:,} {word}" for word in WORDS)
                print(f"{task} {level}: {sum(counts[level].values()):,}: {row}", flush=True)
                bad += sum(counts[level][word] for word in BAD)
            print(f"{task}: {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
