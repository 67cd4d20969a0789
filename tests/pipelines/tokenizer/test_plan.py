"""The plan of train_tokenizer beside what a run counts."""

import json

import pytest

from textmill.pipelines.readers.sources import plan_blocks
from textmill.pipelines.runners import sample as samples
from textmill.pipelines.tokenizer.counting import run_of
from textmill.pipelines.tokenizer.plan import plan_tokenizer
from textmill.pipelines.tokenizer.summary import plan_facts
from textmill.pipelines.train_tokenizer import BUILDER, main
from textmill.schemas.errors import UsageError


def planned(path, *flags, beam=(), times=1.0):
    argv = [f"--input={path}", "--vocab_size=400", "--output=/no/such/place", *flags]
    options = BUILDER.parse(argv)[0]
    run = run_of(options, plan_blocks(options.source), [*beam])
    return plan_tokenizer(options, run, times)


def test_what_is_read_whole_is_exact(train, text):
    plan = planned(text, "--document=line")
    report = train("tokenizer", "--vocab_size=400")
    assert plan.plan.needs.whole
    assert (plan.words, plan.distinct) == (report["words"], report["distinct_words"])
    assert plan.documents == report["text"]["documents"]
    facts = plan_facts(plan)
    assert facts["shuffles"].startswith("2, about ")
    for title in ("disk", "memory", "time"):
        assert title in facts
    for part in ("reading", "counting words", "merging"):
        assert f"{part} " in facts["work"]


def test_a_sample_is_right_within_some_per_cent(corpus, monkeypatch, tmp_path):
    with open(corpus, encoding="utf-8") as file:
        lines = file.read().splitlines() * 4
    path = tmp_path / "text.jsonl"
    texts = [json.dumps({"text": json.loads(line)["text"]}) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    exact = planned(path)
    monkeypatch.setattr(samples, "_WHOLE_BYTES", 1000)
    monkeypatch.setattr(samples, "_PLACE_BYTES", 16 << 10)
    sampled = planned(path)
    assert exact.plan.needs.whole and not sampled.plan.needs.whole
    assert sampled.words == pytest.approx(exact.words, rel=0.15)
    assert sampled.documents == pytest.approx(exact.documents, rel=0.15)


def test_a_plan_for_a_cluster_has_nothing_of_this_machine(text):
    plan = planned(text, "--document=line", beam=["--runner=FlinkRunner"], times=1e9)
    facts = plan_facts(plan)
    assert facts.keys().isdisjoint({"memory", "time"}) and "free" not in str(facts)
    assert " CPU hours: " in facts["on a cluster"]


def test_a_plan_writes_nothing(text, tmp_path, capsys):
    flags = ["--vocab_size=400", f"--output={tmp_path / 'out'}"]
    main([f"--input={text}", *flags, "--dry_run", "--assume_bytes=2TB"])
    out = capsys.readouterr().out
    assert "plan (nothing was written)" in out and "a sample of 2.0 TB" in out
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="it is for plans"):
        main([f"--input={text}", *flags, "--assume_bytes=2TB"])
    with pytest.raises(UsageError, match="nothing to plan"):
        main(["--from_histogram=x", *flags, "--dry_run"])
