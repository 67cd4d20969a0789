"""--filter and config files in whole runs of build_shards."""

import json

import pytest

from pipelines.build_shards import main
from schemas.errors import UsageError
from schemas.metadata import read_set
from tests.tools.python_process import run_python


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


def test_what_a_filter_drops_is_counted_apart_from_what_is_refused(
    tokenizer_path, tmp_path, monkeypatch, capsys
):
    source = tmp_path / "source.jsonl"
    lines = [json.dumps({"text": t}) for t in ("caf\u00e9", "caf\u00e9", "spam!", "x")]
    source.write_text("\n".join([*lines, "{broken"]) + "\n")
    (tmp_path / "set_chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--filter=set_chooser:choose", "--max_rejects=1"]
    main(arguments(source, tokenizer_path, tmp_path / "set", *flags))
    assert "1 filter:spam" in capsys.readouterr().out
    info = read_set(str(tmp_path / "set"))
    assert info.stats.dropped == {"filter:spam": 1, "broken_json": 1}
    assert (info.stats.total().documents, info.stats.total().dropped["duplicates"]) == (2, 1)
    assert info.stats.broken_equations() == []
    assert info.schema.parameters["filter"] == "set_chooser:choose"
    (tmp_path / "set_chooser.py").write_text("def choose(document):\n    return None\n")
    with pytest.raises(UsageError, match="filter_sha256"):
        main(arguments(source, tokenizer_path, tmp_path / "set", *flags))


@pytest.mark.slow
def test_a_worker_process_finds_the_filter_where_the_command_is_run(tokenizer_path, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "short"}\n{"text": "much longer than that"}\n')
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'short' if len(document['text']) < 9 else None\n"
    )
    more = ["--filter=chooser:choose", "--direct_running_mode=multi_processing"]
    command = arguments("in.jsonl", tokenizer_path, "set", *more, "--direct_num_workers=2")
    done = run_python("-m", "pipelines.build_shards", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_set(str(tmp_path / "set")).stats.dropped["filter:short"] == 1


def test_a_set_is_made_again_with_the_file_it_carries(corpus, tokenizer_path, tmp_path):
    made = tmp_path / "set"
    main(arguments(corpus, tokenizer_path, made, "--max_length=64", "--splits=train:0.5,test:0.5"))
    main([f"--config={made}/config.yaml", f"--output={tmp_path / 'again'}"])
    assert shards(tmp_path / "again") == shards(made)
    config = [(d / "config.yaml").read_bytes() for d in (made, tmp_path / "again")]
    assert config[0] == config[1]
    main([f"--config={made}/config.yaml", f"--output={tmp_path / 'other'}", "--seed=3"])
    assert shards(tmp_path / "other") != shards(made)
