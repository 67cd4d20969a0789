"""Filters and config files in whole runs of build_shards."""

import json
import os
import subprocess
import sys

import pytest

from pipelines.build_shards import main
from schemas.errors import DataError, UsageError
from schemas.sidecar import read_set
from tests.tools.places import ROOT


def arguments(source, tokenizer_path, output, *more):
    return [
        f"--input={source}",
        f"--tokenizer={tokenizer_path}",
        f"--output={output}",
        "--num_shards=2",
        *more,
    ]


def shards(output):
    """sha256 of every shard, from the manifest."""
    return {f.path: f.sha256 for f in read_set(str(output)).manifest.files if f.split}


def test_what_filters_drop_is_counted_apart_from_what_is_refused(
    tokenizer_path, tmp_path, monkeypatch, capsys
):
    source = tmp_path / "source.jsonl"
    lines = [json.dumps({"text": t}) for t in ("caf\u00e9 noir", "cafe\u0301 noir", "spam!", "x")]
    source.write_text("\n".join([*lines, "{broken"]) + "\n")
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--normalize=nfc", "--min_chars=2", "--filter=chooser:choose", "--max_rejects=1"]
    for name, more in {
        "plain": [],
        "runner": ["--exchange=runner", "--keep_rejects"],
        "kept": ["--keep_rejects"],
    }.items():
        main(arguments(source, tokenizer_path, tmp_path / name, *flags, *more))
    assert "1 filter:spam, 1 min_chars" in capsys.readouterr().out
    info = read_set(str(tmp_path / "plain"))
    assert info.stats.dropped == {"filter:spam": 1, "min_chars": 1, "broken_json": 1}
    # One document after normalization: the other is its duplicate.
    assert (info.stats.total().documents, info.stats.total().dropped["duplicates"]) == (1, 1)
    assert info.stats.broken_equations() == []
    assert not (tmp_path / "plain/rejects/filtered.jsonl").exists()
    assert shards(tmp_path / "plain") == shards(tmp_path / "kept") == shards(tmp_path / "runner")
    for name in ("kept", "runner"):
        kept = (tmp_path / name / "rejects/filtered.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in kept] == [
            {"reason": "filter:spam", "path": str(source), "offset": 55, "text": "spam!"},
            {
                "reason": "min_chars",
                "measured": 1,
                "limit": 2,
                "path": str(source),
                "offset": 73,
                "text": "x",
            },
        ]
        for line in map(json.loads, kept):
            found = source.read_bytes()[line["offset"] :].splitlines()[0]
            assert json.loads(found)["text"] == line["text"]
        listed = {file.path for file in read_set(str(tmp_path / name)).manifest.files}
        assert "rejects/filtered.jsonl" in listed
    parameters = info.schema.parameters
    assert (parameters["normalize"], parameters["filter"]) == ("nfc", "chooser:choose")
    with pytest.raises(UsageError, match="min_chars"):
        main(arguments(source, tokenizer_path, tmp_path / "plain", *flags, "--min_chars=3"))


def test_rules_that_edit_and_count_are_in_the_statistics_and_the_contract(tokenizer_path, tmp_path):
    source = tmp_path / "source.jsonl"
    texts = ["Menu\nThe dog ran home over the hill.", "The cat came back in the morning."]
    texts += ["There is no end to this", "Der Hund ist schon lange nicht mehr da."]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    flags = ["--c4_line_ends=yes", "--language=en,de"]
    for name, more in {"made": [], "runner": ["--exchange=runner"]}.items():
        main(arguments(source, tokenizer_path, tmp_path / name, *flags, *more))
    info = read_set(str(tmp_path / "made"))
    kept, dropped = info.stats.total().documents, info.stats.dropped
    assert kept + sum(dropped.values()) == 4 and dropped["c4:min_sentences"] == 1
    assert info.stats.observed["edited"] == {"c4": 1}
    assert info.stats.observed["edited_bytes"] == {"c4": len("Menu\n")}
    assert sum(info.stats.observed["language"].values()) == 4
    assert info.stats.broken_equations() == []
    assert shards(tmp_path / "made") == shards(tmp_path / "runner")
    main([f"--config={tmp_path}/made/config.yaml", f"--output={tmp_path / 'again'}"])
    assert shards(tmp_path / "made") == shards(tmp_path / "again")
    parameters = info.schema.parameters
    assert parameters["c4_line_ends"] == "yes" and "quality" not in parameters
    with pytest.raises(UsageError, match="c4_min_sentences"):
        main(arguments(source, tokenizer_path, tmp_path / "made", *flags, "--c4_min_sentences=2"))


def test_a_filter_that_fails_fails_the_run_in_words(corpus, tokenizer_path, tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text("def choose(document):\n    return document['title']\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError) as error:
        main(arguments(corpus, tokenizer_path, tmp_path / "set", "--filter=faulty:choose"))
    assert "--filter=faulty:choose failed with KeyError: 'title' on a document of" in str(
        error.value
    )
    assert corpus in str(error.value)
    with pytest.raises(UsageError, match="nowhere cannot be imported"):
        main(arguments(corpus, tokenizer_path, tmp_path / "set", "--filter=nowhere:choose"))


def test_a_worker_process_finds_the_filter_where_the_command_is_run(
    corpus, tokenizer_path, tmp_path
):
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'short' if len(document['text']) < 99 else None\n"
    )
    more = ["--filter=chooser:choose", "--direct_running_mode=multi_processing"]
    command = arguments(corpus, tokenizer_path, "set", *more, "--direct_num_workers=2")
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.build_shards", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert read_set(str(tmp_path / "set")).stats.dropped["filter:short"] > 0


def test_a_set_is_made_again_with_the_file_it_carries(corpus, tokenizer_path, tmp_path):
    made = tmp_path / "set"
    main(arguments(corpus, tokenizer_path, made, "--max_length=64", "--splits=train:0.5,test:0.5"))
    main([f"--config={made}/config.yaml", f"--output={tmp_path / 'again'}"])
    assert shards(tmp_path / "again") == shards(made)
    config = [(d / "config.yaml").read_bytes() for d in (made, tmp_path / "again")]
    assert config[0] == config[1]
    main([f"--config={made}/config.yaml", f"--output={tmp_path / 'other'}", "--seed=3"])
    assert shards(tmp_path / "other") != shards(made)


def test_a_config_may_name_the_task_and_its_flags(corpus, tokenizer_path, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"build_shards:\n  task: clm\n  packing: concat\n  eos: true\n  input: [{corpus}]\n"
        f"  tokenizer: {tokenizer_path}\n  direct_running_mode: in_memory\n"
    )
    main([f"--config={path}", f"--output={tmp_path / 'set'}", "--packing=best_fit"])
    schema = read_set(str(tmp_path / "set")).schema
    assert (schema.task, schema.packing) == ("clm", "best_fit")
    path.write_text("task: clm\nmask_rate: 0.2\n")
    with pytest.raises(UsageError, match="--mask_rate is a flag of --task=mlm, not of clm"):
        main([f"--config={path}", f"--output={tmp_path / 'set'}", "--tokenizer=t", "--input=i"])
