"""Fields with other names in the inputs give the same rows."""

import json
from pathlib import Path

import pytest

from pipelines import build_shards
from tests.golden.outputs import HERE, KEPT
from tests.tools.places import CHAT_TEMPLATE

TASKS = {
    "qa": (
        "questions.jsonl",
        {"question": "ask", "context": "page", "answers": "gold", "id": "number"},
        ["--max_length=96", "--max_question_length=16", "--max_answer_length=12"],
    ),
    "classification": (
        "documents.jsonl",
        {"text": "body", "label": "mood", "url": "address"},
        ["--id_field=url"],
    ),
    "chat": ("chat.jsonl", {"messages": "turns", "tools": "functions"}, []),
}


@pytest.mark.parametrize("task", TASKS)
def test_the_names_of_fields_are_flags(task, tmp_path):
    name, renames, more = TASKS[task]
    records = [json.loads(line) for line in (HERE / "inputs" / name).read_text().splitlines()]
    if task == "chat":
        function = {"name": "turns", "description": "counts turns", "parameters": {}}
        records = [
            {**record, "tools": [{"type": "function", "function": function}]} for record in records
        ]
        more = [f"--chat_template={template_of_tools(tmp_path)}"]
    flags = [f"--{ours}_field={theirs}" for ours, theirs in renames.items() if ours != "url"]
    renamed = [
        {renames.get(key, key): value for key, value in record.items()} for record in records
    ]
    built = build(task, tmp_path / "same", records, more)
    others = [flag.replace("=url", "=address") for flag in more]
    assert build(task, tmp_path / "renamed", renamed, [*others, *flags]) == built
    assert len(built) == 2 + (task != "chat")  # both splits, and evaluation.jsonl


def template_of_tools(folder: Path) -> Path:
    """A template that writes the tools before the messages."""
    path = folder / "template.jinja"
    path.write_text(
        "{% if tools %}{{ tools[0].function.name }}{% endif %}" + CHAT_TEMPLATE.read_text()
    )
    return path


def build(task: str, folder: Path, records: list[dict], flags: list[str]) -> dict[str, bytes]:
    """The rows of a dataset, and what its evaluation reads beside them."""
    folder.mkdir()
    source = folder / "input.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    always = [f"--task={task}", f"--input={source}", f"--output={folder / 'set'}"]
    always += [f"--tokenizer={KEPT / 'bpe'}", "--splits=train:0.3,validation:0.7"]
    build_shards.main([*always, *flags])
    paths = [*(folder / "set").glob("*-of-*"), *(folder / "set").glob("evaluation.jsonl")]
    return {path.name: path.read_bytes() for path in paths}
