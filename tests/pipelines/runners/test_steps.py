"""Counters that a runner shows of a run equal the counts of stats.json."""

import json

import apache_beam as beam
from apache_beam.metrics.metric import MetricsFilter

from textmill.pipelines.build_shards import main
from textmill.pipelines.runners.steps import NAMESPACE
from textmill.schemas.files.finished import read_dataset


def test_metrics_are_what_the_metadata_says(corpus, tokenizer_path, tmp_path, monkeypatch):
    results, run = [], beam.Pipeline.run
    monkeypatch.setattr(beam.Pipeline, "run", lambda job: results.append(run(job)) or results[-1])
    documents = [{"text": text} for text in ("twice is once", "twice is once", "", "\ud800")]
    odd = tmp_path / "odd.jsonl"
    odd.write_text("".join(json.dumps(document) + "\n" for document in documents) + "no JSON\n")
    output = tmp_path / "set"
    flags = [f"--input={corpus}", f"--input={odd}", f"--tokenizer={tokenizer_path}"]
    main([*flags, f"--output={output}", "--num_shards=3", "--max_length=64"])
    info = read_dataset(str(output))
    total = info.stats.total()
    [result] = results
    found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
    counted = {metric.key.metric.name: metric.committed for metric in found["counters"]}
    assert len(info.stats.dropped) >= 2 and total.dropped["duplicates"]
    expected = {
        "documents_read": info.stats.documents_read,
        "source_bytes": info.stats.source_bytes,
        **{f"documents_dropped_{r}": number for r, number in info.stats.all_dropped().items()},
        "documents_kept": total.documents,
        "tokens": total.tokens,
        "rows": total.rows,
        "shard_bytes": sum(file.bytes for file in info.manifest.files if file.split),
    }
    assert counted == {name: number for name, number in expected.items() if number}
    spread = {metric.key.metric.name: metric.committed for metric in found["distributions"]}
    shards = sum(info.schema.shards.values())
    assert spread.keys() == {"key_bytes", "shard_milliseconds"}
    assert all(value.count == shards for value in spread.values())
    assert spread["key_bytes"].sum > 2 * total.tokens  # two bytes a token, and what is beside them
