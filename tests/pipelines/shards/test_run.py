"""What a run returns, without a command: the dataset, found or made, and no printed line."""

from textmill.pipelines.build_shards import BUILDER
from textmill.pipelines.shards.run import plan, run
from textmill.pipelines.shards.summary import print_plan, print_result
from textmill.schemas.errors import as_flags


def test_a_run_returns_the_dataset_and_prints_nothing(tmp_path, tokenizer_path, capfd):
    text, output = tmp_path / "in.txt", tmp_path / "set"
    text.write_text("One document.\r\nAnother one.\r\n")
    flags = [f"--input={text}", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    flags += ["--document=line", "--splits=train:1", "--task=clm", "--max_length=16"]
    options, beam_arguments = BUILDER.parse(flags)
    said: list[str] = []
    planned = plan(options, beam_arguments, say=said.append)
    assert planned.estimate.documents == 2 and said == [] and not output.exists()
    made = run(options, beam_arguments, say=said.append)
    assert made and made.thing.directory == str(output)
    assert made.thing.stats.documents_read == 2
    assert made.seconds is not None and made.seconds > 0
    assert [line.partition(", ")[0] for line in said] == ["29 bytes in 1 block"]
    said.clear()
    found = run(options, beam_arguments, say=said.append)
    assert found and found.seconds is None and said == []
    assert (found.thing, found.warnings) == (made.thing, made.warnings)
    assert capfd.readouterr().out == ""
    lines: list[object] = []
    print_plan(planned, lambda *parts, **style: lines.extend(parts))
    print_result(found, lambda *parts, **style: lines.extend(parts))
    assert [as_flags(line) for line in lines if isinstance(line, str)] == [
        f"{output} already contains this dataset (fingerprint "
        f"{made.thing.schema.fingerprint[:12]}): nothing to do",
        *(f"warning: {warning}" for warning in map(as_flags, made.warnings)),
        f"inspect it: python -m pipelines.inspect_shards {output} --row=0",
        f"train on it: python -m trainers.flax_clm --shards={output}",
    ]
