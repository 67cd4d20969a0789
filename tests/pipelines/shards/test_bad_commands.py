"""Commands that cannot work: the message, the exit code, and that nothing is published.

Here is one case of each class, and what only a whole command can show. The tests of flags,
configurations, filters, tokenizers, tasks and datasets enumerate what each of them rejects.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.golden.outputs import KEPT
from tests.tools.command_cases import GOOD, Case, Content, check, json_lines, lines
from tests.tools.shard_factory import write_mlm_set
from tests.tools.tokenizer_factory import changed, config_of, data_of, split, trained_tokenizer

TEXT: dict[str, Content] = {"in.txt": lines(*GOOD)}


def stops(*flags: str, said: Sequence[str], code: int = 2, **rest: Any) -> Case:
    return Case(TEXT | rest.pop("files", {}), flags, code, said, **rest)


# One flag, and what the message contains beside its name or, for "", the whole flag.
FLAGS = {
    "--tokenizer=": "--tokenizer",
    "--output=": "--output",
    "--output=/dev/full": "",
    "--output=nowhere://bucket/set": "gs://",
    "--output={d}/s\udcff t": "UTF-8",
    "--input=": "--input is empty",
    "--max_length=0": "",
    "--max_length=2": "--max_length=2 leaves no room for text",
    "--max_length=99999999": "",
    "--task=poetry": "mlm",
    "--seed=-1": "",
    "--splits=": "",
    "--splits=Train:1": "'Train'",
    "--splits=../x:1": "../x",
    "--splits=train:0.9,test:0.2": "add up to 1.1, not to 1",
    "--splits=train:1,test:0": "share of test",
    "--splits=train:nan": "",
    "--splits=train:inf": "",
    "--num_shards=0": "",
    "--num_shards=16,1": "'16,1' is not a number; give 16 for the largest split, or train:16",
    "--num_shards=train:x": "'x' is not a number; give train:16",
    "--num_shards=train:1,1": "'1' is not NAME:NUMBER; give train:16",
    "--splits=0.9,0.1": "'0.9' is not NAME:NUMBER; give train:0.98,validation:0.02",
    "--num_shards=100000": "",
    "--num_shards=test:3": "names test, but the splits are train",
    "--mask_rate=nan": "",
    "--mask_rate=1.5": "",
    "--mask_copies=2": "--mask_copies",
    "--max_document_bytes=0": "",
    "--max_document_bytes=9999999999": "",
    "--quality=c4": "is a flag of build_corpus",
}
FLAG_CASES = {
    flag: stops(flag, *["--static_masking"] * flag.startswith("--mask_rate"), said=[said or flag])
    for flag, said in FLAGS.items()
} | {
    "a flag of another task": stops("--task=clm", "--mask_rate=0.3", said=["mask_rate"]),
    "copies without a training split": stops(
        *("--static_masking", "--mask_copies=2", "--splits=test:0.5,validation:0.5"),
        said=["--mask_copies=2 copies rows of training splits only", "(test, validation)"],
    ),
    "given splits and --input": stops(
        "--train_input={d}/in.txt",
        "--input={d}/in.txt",
        said=["--input={d}/in.txt: it is split by hash", "give one of both"],
    ),
    "shares beside splits": stops(
        "--train_input={d}/in.txt",
        "--splits=train:1",
        said=["--splits=train:1: these are shares of input", "give one of both"],
    ),
    "an encoding without rows": stops(
        "--task=tokens", "--encoding=int64_list", said=["--encoding=int64_list: it is for rows"]
    ),
    "units of the trainer's masks": stops(
        "--no_static_masking", "--mask_unit=span", said=["--mask_unit=span", "use only one"]
    ),
    "a configuration that is not UTF-8": stops(
        "--config={d}/c.yaml", files={"c.yaml": b"\xff\xfe"}, said=["c.yaml", "YAML"]
    ),
    "a filter that is not Python": stops(
        "--filter=bad1:f",
        files={"bad1.py": b"def ("},
        said=["bad1:f", "cannot be imported", "SyntaxError"],
    ),
    "a filter that exits": stops(
        "--filter=bad2:f",
        files={"bad2.py": b"def f(_): raise SystemExit(0)"},
        said=["bad2:f", "SystemExit", "in.txt"],
        code=1,
    ),
    "a filter that drops all": stops(
        "--filter=bad3:f",
        files={"bad3.py": b"def f(_): return 'no'"},
        said=["no document", "filter:no"],
        code=1,
    ),
    "rows of one word": Case(TEXT, ["--max_length=3", "--packing=none"], kept=()),
    "the longest rows": Case(TEXT, ["--max_length=65535"]),
    "a split without documents": Case(
        TEXT, ["--splits=train:0.999999,test:0.000001", "--num_shards=train:1,test:2"]
    ),
    "more shards than documents": Case(TEXT, ["--num_shards=50"]),
}
CONFIG = config_of(trained_tokenizer())
SMALL = CONFIG["model"]["vocab"]
LARGE = SMALL | {f"w{number}": len(SMALL) + number for number in range(66_000)}
TOKENIZERS = {
    "a tokenizer.json that is a folder": stops(
        "--tokenizer={d}/tok/tokenizer.json",
        files={"tok/tokenizer.json/x": b""},
        said=["tokenizer.json"],
    ),
    "a pattern that backtracks on the text": stops(
        "--tokenizer={d}/tok",
        "--task=clm",
        files={
            "in.txt": lines(*GOOD, "a" * 5000 + "b"),
            "tok/tokenizer.json": data_of(
                changed(CONFIG, "pre_tokenizer", value=split("(a|aa)+$"))
            ),
        },
        said=["pattern"],
        code=1,
    ),
    "a vocabulary above 65,536": Case(
        TEXT | {"tok/tokenizer.json": data_of(changed(CONFIG, "model", "vocab", value=LARGE))},
        ["--tokenizer={d}/tok", "--task=clm", "--no_bos", "--no_eos"],
        kept=(),
    ),
}


def made_set(directory: Path) -> None:
    write_mlm_set(directory / "other", train=4, validation=2)


OUTPUTS = {
    "a file": stops(files={"set": b"x"}, said=["--output={d}/set", "is a file, or below a file"]),
    "the input folder": Case(
        {"in/a.txt": lines(*GOOD)},
        ["--input={d}/in", "--output={d}/in"],
        2,
        ["--output={d}/in", "another"],
    ),
    "below the input folder": Case(
        {"in/a.txt": lines(*GOOD)}, ["--input={d}/in", "--output={d}/in/set"]
    ),
    "a finished set among the inputs": Case(
        {"in/a.txt": lines(*GOOD)},
        ["--input={d}/in"],
        before=lambda d: write_mlm_set(d / "in" / "done", train=4, validation=2),
    ),
    "a tokenizer of train_tokenizer": stops(
        "--output={d}/tok",
        said=["{d}/tok", "tokenizer"],
        before=lambda d: shutil.copytree(KEPT / "bpe", d / "tok"),
    ),
    "a tokenizer into a set": stops(
        "--output={d}/other",
        said=["{d}/other", "contains a dataset"],
        before=made_set,
        command="train_tokenizer",
    ),
}
OUTPUTS |= {
    what: stops(
        "--output={d}/out",
        files={f"out/{name}": b"{}", "out/.lock": b""},
        said=[f"{{d}}/out already contains {what} ({name})"],
    )
    for what, name in (
        ("a model or a run of a trainer", "config.json"),
        ("a tokenizer", "tokenizer_config.json"),
        ("an export", "export.json"),
    )
}
TO = ["--to=jsonl", "--output={d}/export"]
SETS = {
    f"{command}: no dataset": Case({}, ["{d}/other", *more], 1, ["does not exist"], command=command)
    for command, more in (("verify", []), ("inspect_shards", []), ("export", TO))
} | {"verify": Case({}, [], 2, ["verify DATASET"], command="verify")}
QUESTION = {"id": "q1", "question": "Who?", "context": "It was Bo."}
ANSWERED = {**QUESTION, "answers": [{"text": "Bo", "answer_start": 7}]}


def answers(*found: Any, **changes: Any) -> dict[str, Any]:
    return {**QUESTION, "id": "q2", "answers": list(found), **changes}


QUESTIONS = {
    "questions": Case(
        {
            "in.jsonl": json_lines(
                ANSWERED,
                answers({"text": "Al", "answer_start": 7}),
                answers({"text": "Bo", "answer_start": 10**15}),
                answers({"text": "Bo", "answer_start": -5}),
                answers({"text": " ", "answer_start": 2}),
                answers({"text": "word " * 50, "answer_start": 0}, context="word " * 60),
                answers({"answer_start": 7}),
                answers({"text": "Bo", "answer_start": "7"}),
                {**QUESTION, "answers": 3},
                QUESTION,
                answers(context=""),
                {**ANSWERED, "question": ""},
                answers(id=[1]),
            )
        },
        ["--task=qa", "--max_answer_length=8"],
        dropped={
            "answer_not_at_offset": 3,
            "empty_answer": 1,
            "answer_too_long": 1,
            "not_answers": 3,
            "missing_field": 1,
            "empty_context": 1,
            "empty": 1,
            "not_an_id": 1,
        },
        kept=(),
    ),
    "a file without a question that can be trained on": Case(
        {
            "in1.jsonl": json_lines(answers({"text": "Al", "answer_start": 7})),
            "in2.jsonl": json_lines(ANSWERED),
        },
        ["--task=qa"],
        dropped={"answer_not_at_offset": 1},
        kept=(),
    ),
    "text for questions": stops("--task=qa", said=["in.txt", "no field 'context'"]),
} | {
    what: Case({"in.json": content}, ["--task=qa"], 1, said)
    for what, content, said in (
        (
            "SQuAD that nests without end",
            b'{"data": [{"paragraphs": ' + b"[" * 99_999,
            ["in.json", "not complete JSON"],
        ),
        (
            "lists where SQuAD has objects",
            b'{"data": [' + b"[" * 99_999,
            ["no document", "1 broken_json"],
        ),
        ("SQuAD that is not UTF-8", b'{"data": [{"title": "\xff"}]}', ["in.json", "UTF-8"]),
    )
}


def classes_of_two(path: Path) -> None:
    """As `datasets` writes it, with numbers 0, 1 and 7 of the classes neg and pos."""
    features = {
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "text": {"dtype": "string", "_type": "Value"},
    }
    stored = json.dumps({"info": {"features": features}})
    table = pa.table({"text": GOOD, "label": [0, 1, 7]})
    pq.write_table(table.replace_schema_metadata({"huggingface": stored}), path)


LABELS = ("1", 1, True, 1.5, [1], None, "", "odd", "x" * (1 << 20))
TASKS = {
    "labels": Case(
        {"in.jsonl": json_lines(*({"text": f"a{n}", "label": x} for n, x in enumerate(LABELS)))},
        ["--task=classification", "--classes=1,true"],
        dropped={"not_a_label": 2, "missing_field": 2, "unknown_label": 2},
        kept=(),
    ),
    "a class number that no class has": Case(
        {"in.parquet": classes_of_two},
        ["--task=classification"],
        dropped={"label_outside_classes": 1},
        kept=(),
    ),
    "one label for all": Case(
        {"in.jsonl": json_lines({"text": "a", "label": "x"}, {"text": "b", "label": "x"})},
        ["--task=classification"],
        2,
        ["'x'", "--label_field"],
    ),
}
CASES = FLAG_CASES | TOKENIZERS | SETS | QUESTIONS | TASKS
CASES |= {f"output: {name}": case for name, case in OUTPUTS.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_commands(case, tmp_path, tokenizer_path, monkeypatch, capfd):
    check(case, tmp_path, tokenizer_path, monkeypatch, capfd)
