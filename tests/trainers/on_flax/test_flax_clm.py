"""The trainer as a command: training, resuming, measuring, generating, weights in and out."""

import json
import math
import os
import signal
import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.monitoring
import numpy as np
import pytest

from schemas.errors import DataError, UsageError
from schemas.statistics import ShardStatistics
from tests.tools.clm_factory import clm_rows, clm_schema, write_clm_set
from tests.tools.compile_cache import compiled_once
from tests.tools.places import ROOT
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import replace_tokenizer, tokenizer_json, write_mlm_set, write_set
from tests.tools.torch_gpt2 import greedy, nats_of, open_model
from trainers import use_model
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import make_flags
from trainers.flax_clm import FlaxClmFlags, main
from trainers.models.hf_files import read_directory, write_directory
from trainers.models.plan_model import plan_model
from trainers.run.journal import MetricsFile
from trainers.run.trained import find_trained
from trainers.tasks.language_models import ClmTask

# One configuration for most runs: equal programs are compiled once. An epoch has 10 steps.
RUN = ["--steps=12", "--batch_size=4", "--dropout=0.1", "--learning_rate=0.02"]
SIZES = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32"]
MODEL = [*SIZES, "--max_positions=48"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with compiled_once(tmp_path_factory.mktemp("compiled")):
        yield


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """40 training rows and 10 of validation."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_clm_set(directory)
    return directory


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A run in one go, its exported weights, and what was compiled between its lines of metrics."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    told: list[str] = []
    write = MetricsFile.write

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "compile" in event:
            told.append(event)

    def note_line(self, metrics: dict[str, Any]) -> None:
        told.append(f"{metrics['kind']} {metrics['step']}")
        write(self, metrics)

    jax.monitoring.register_event_duration_secs_listener(note)
    exported = output.parent / "exported"
    more = ["--evaluate_every=5", "--checkpoint_every=4", f"--export={exported}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetricsFile, "write", note_line)
        main(flags(shards, output, *more))
    return output, exported, told


def flags(shards, output, *more):
    return [f"--shards={shards}", f"--output={output}", *RUN, *MODEL, *more]


def process(*arguments, code="from trainers.flax_clm import main\nrun_entry(main)", **environment):
    """Runs the trainer, or other code, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", f"from schemas.commands.entry import run_entry\n{code}", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
    )


def losses(output):
    lines = [
        line for line in read_metrics(str(output / "metrics.jsonl")) if line["kind"] == "train"
    ]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [line["loss"] for line in lines]


def last_evaluation(output):
    lines = read_metrics(str(output / "metrics.jsonl"))
    return [line for line in lines if line["kind"] == "evaluation"][-1]


def weights(output):
    """Of a run's newest checkpoint, or of an export."""
    [(_, read)] = find_trained(str(output)).weights
    return read()


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name


def test_a_whole_run_learns_and_says_what_it_measured(shards, whole):
    output, _, _ = whole
    assert losses(output)[-1] < losses(output)[0]
    lines = read_metrics(str(output / "metrics.jsonl"))
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [5, 10, 12]
    batches = list(ShardSet(shards).in_order("validation", batch_size=5))
    text_bytes = ShardSet(shards).stats.split("validation").text_bytes
    for line in evaluations:
        assert line["predicted"] == sum(batch["loss_weights"].sum() for batch in batches)
        assert line["perplexity"] == pytest.approx(math.exp(line["loss"]))
        nats = line["loss"] * line["predicted"]
        assert line["bits_per_byte"] == pytest.approx(nats / math.log(2) / text_bytes)
    for name in ("schema.json", "tokenizer.json"):
        assert (output / name).read_bytes() == (shards / name).read_bytes()
    assert (output / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["12", "8"]


def test_nothing_compiles_after_the_first_step(whole):
    """Neither training nor evaluating nor writing checkpoints."""
    told = whole[2]
    assert "evaluation 12" in told and told.count("train 1") == 1
    after = told[told.index("train 1") : told.index("evaluation 12")]
    assert [event for event in after if "compile" in event] == []
    assert any("compile" in event for event in told)  # the listener hears what compiles


def measured(nats, correct, counted, text):
    """What the task makes of these sums."""
    task = ClmTask(make_flags(FlaxClmFlags, shards="set"), clm_schema())
    task._text = text
    batch = {"segment_ids": np.ones((1, 110), np.uint8)}
    found = task.measure(iter([(batch, {"loss": nats, "correct": correct, "counted": counted})]))
    assert found is not None
    return found


def test_words_and_bytes_by_hand():
    """100 tokens of 3 nats each over 200 bytes and 50 words."""
    found = measured(
        300.0, 25.0, 100.0, ShardStatistics(text_bytes=200, words=50, tokens_in_rows=110)
    )
    assert found["perplexity"] == pytest.approx(math.exp(3))
    assert found["bits_per_byte"] == pytest.approx(1.5 / math.log(2))
    assert found["word_perplexity"] == pytest.approx(math.exp(6))
    assert found["accuracy"] == 0.25
    assert found["predicted"] == 100 and found["unpredicted"] == 10
    assert "word_perplexity" not in measured(1.0, 0.0, 1.0, ShardStatistics())


def test_what_is_exported_transformers_measures_alike(shards, whole):
    """The validation loss of the run, by PyTorch, on the same packed rows."""
    output, exported, _ = whole
    model = open_model(str(exported)).eval()
    nats = counted = 0.0
    for batch in ShardSet(shards).in_order("validation", batch_size=5):
        found = nats_of(model, batch)
        nats, counted = nats + found[0].item(), counted + found[1].item()
    assert nats / counted == pytest.approx(last_evaluation(output)["loss"], rel=1e-5)
    assert (exported / "tokenizer.json").read_bytes() == (shards / "tokenizer.json").read_bytes()


def test_a_checkpoint_is_measured_at_any_time(shards, whole, tmp_path, capsys):
    """A run, one of its checkpoints, its export: the run's own numbers, and how fast it was."""
    output, exported, _ = whole
    report = tmp_path / "report.jsonl"
    for checkpoint in (output, output / "checkpoints" / "12", exported):
        more = ["--batch_size=4", f"--report={report}", f"--shards={shards}"]
        use_model.main([str(checkpoint), "--evaluate", *more])
    lines = read_metrics(str(report))
    run = last_evaluation(output)
    for line in lines:
        assert line["loss"] == pytest.approx(run["loss"], rel=1e-6)
        assert line["predicted"] == run["predicted"] and line["tokens_per_second"] > 0
    assert [line["checkpoint"] for line in lines] == [f"{output}, step 12"] * 2 + [str(exported)]
    said = capsys.readouterr().out
    assert f"perplexity {run['perplexity']:,.2f}" in said and "tokens/s" in said
    use_model.main([f"{output}/checkpoints/8", "--evaluate"])
    assert "step 8 on validation" in capsys.readouterr().out


def test_killed_while_it_writes_a_checkpoint_it_resumes_to_the_bit(shards, whole, tmp_path):
    """It dies at the renaming that would finish the checkpoint of step 8: that of 4 counts."""
    output = tmp_path / "run"
    code = (
        "import os, signal, sys\n"
        "def note(event, arguments):\n"
        "    if event == 'os.rename' and str(arguments[1]).endswith('checkpoints/8'):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(note)\n"
        "from trainers.flax_clm import main\nrun_entry(main)"
    )
    more = ["--evaluate_every=5", "--checkpoint_every=4"]
    killed = process(*flags(shards, output, *more), code=code)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    there = {path.name for path in (output / "checkpoints").iterdir()}
    assert "4" in there and "8" not in there and len(there) > 1  # and a part of 8
    main(flags(shards, output, *more, "--resume"))
    assert losses(output) == losses(whole[0])
    assert_same_bits(weights(output), weights(whole[0]))


def test_interrupted_it_saves_and_another_number_of_devices_goes_on(
    shards, whole, tmp_path, monkeypatch, capsys
):
    """Ctrl-C after step 3 on one device, the rest on two: the same losses, but for rounding."""
    output, write = tmp_path / "run", MetricsFile.write

    def write_then_interrupt(self, metrics):
        write(self, metrics)
        if metrics["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(MetricsFile, "write", write_then_interrupt)
        main(flags(shards, output))
    assert left.value.code == 130
    said = capsys.readouterr().err
    assert "interrupted: the checkpoint after step" in said and "--resume" in said.splitlines()[-1]
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    resumed = process(*flags(shards, output, "--resume"), **two)
    assert resumed.returncode == 0, resumed.stderr
    assert "2 x cpu, float32" in resumed.stderr
    assert losses(output) == pytest.approx(losses(whole[0]), rel=1e-4)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_batch(shards, whole, tmp_path):
    """Here because of the weights that it begins with."""
    config, tensors = read_directory(str(whole[1]))
    wild = {name: value * 1e30 for name, value in tensors.items()}
    write_directory(str(tmp_path / "wild"), config, wild)
    data = [f"--shards={shards}", f"--init_from={tmp_path / 'wild'}"]
    with pytest.raises(DataError, match=r"step \d+: the loss is (nan|inf).*on rows ") as stopped:
        main([*data, *RUN, f"--output={tmp_path / 'run'}"])
    (saved,) = (tmp_path / "run").glob("stopped-at-step-*.npz")
    assert str(saved) in str(stopped.value)
    with np.load(saved) as file:
        batch = dict(file)
    assert ", ".join(map(str, batch["row_index"])) in str(stopped.value)
    stored = ShardSet(shards).read("train", batch["row_index"])
    np.testing.assert_array_equal(batch["input_ids"], stored["input_ids"])


def test_fine_tuning_begins_where_the_weights_stand(shards, whole, tmp_path):
    output, exported, _ = whole
    data = [f"--shards={shards}", f"--init_from={exported}"]
    main([*data, *RUN, f"--output={tmp_path / 'run'}", "--stop_after=1"])
    assert losses(tmp_path / "run")[0] < losses(output)[0] - 0.1
    with pytest.raises(UsageError, match="--layers=2, but the weights of .* have 1: leave"):
        main([*data, "--layers=2"])


def test_a_vocabulary_that_grew_is_grown_and_another_tokenizer_refused(whole, tmp_path):
    """The set's has 57 tokens, the published one the first 50 of them."""
    exported = whole[1]
    write_clm_set(tmp_path / "larger", vocab_size=57)
    larger = ShardSet(tmp_path / "larger")
    given = make_flags(FlaxClmFlags, shards="larger", init_from=str(exported))
    planned = plan_model(given, larger.schema)
    assert planned.config.vocab_size == 57
    published, notes = planned.first_weights(0)
    assert "the vocabulary grows from 50 tokens to the dataset's 57" in notes[0]
    table = published["embeddings.tokens.weight"]
    assert table.shape == (57, 16)
    np.testing.assert_array_equal(table[:50], weights(exported)["embeddings.tokens.weight"])

    content = json.loads(tokenizer_json(50))
    vocabulary = content["model"]["vocab"]
    vocabulary["w5"], vocabulary["w6"] = vocabulary["w6"], vocabulary["w5"]
    write_clm_set(tmp_path / "other")
    replace_tokenizer(tmp_path / "other", json.dumps(content).encode())
    with pytest.raises(UsageError, match="id 5 is 'w5' there and 'w6' in the dataset"):
        main([f"--shards={tmp_path / 'other'}", f"--init_from={exported}"])
    with pytest.raises(
        UsageError, match=f"{exported}: .*id 5 is 'w5' there and 'w6' in the dataset"
    ):
        use_model.main([str(exported), "--evaluate", f"--shards={tmp_path / 'other'}"])
    with pytest.raises(UsageError, match="has a vocabulary of 50, but .* has one of 57"):
        use_model.main([str(exported), "--evaluate", f"--shards={tmp_path / 'larger'}"])


def test_opt_trains_and_goes_out_and_in(shards, tmp_path, capsys):
    """OPT-350m's form: post-norm and projections."""
    exported = tmp_path / "exported"
    more = ["--family=opt", "--norm=post", "--embedding_size=8", f"--export={exported}"]
    main(flags(shards, tmp_path / "run", *more, "--stop_after=1"))
    config = json.loads((exported / "config.json").read_text())
    assert config["word_embed_proj_dim"] == 8 and not config["do_layer_norm_before"]
    assert_same_bits(weights(tmp_path / "run"), weights(exported))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(exported)
        tokenizer = AutoTokenizer.from_pretrained(exported)
    assert tokenizer.eos_token == "</s>" and model.config.model_type == "opt"
    capsys.readouterr()
    use_model.main([str(exported), "--generate=w7 w8", "--max_new_tokens=8"])
    ours = tokenizer(capsys.readouterr().out, add_special_tokens=False).input_ids
    theirs = greedy(model, [0, 7, 8], 8)  # <s> as in training
    assert ours == [7, 8, *(number for number in theirs if number > 4)]


def test_generates_from_a_run_and_from_an_export(whole, capsys):
    output, exported, _ = whole
    text = ["--generate=w7 w8", "--max_new_tokens=8"]
    found = []
    for checkpoint in (output, exported):
        use_model.main([str(checkpoint), *text])
        said = capsys.readouterr()
        assert "tokens in" in said.err and str(checkpoint) in said.err
        found.append(said.out)
    assert found[0] == found[1] and found[0].startswith("w7 w8")
    drawn = ["--temperature=1.5", "--samples=3", "--top_k=40", "--top_p=0.95"]
    texts = []
    for seed in (0, 0, 1):
        use_model.main([str(output), *text, *drawn, f"--seed={seed}"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert [line[:3] for line in texts[0].splitlines()].count("---") == 3


def test_a_long_prompt_leaves_less_room_and_says_so(whole, capsys):
    words = " ".join(f"w{5 + number % 40}" for number in range(40))
    use_model.main([str(whole[0]), f"--generate={words}", "--max_new_tokens=50"])
    assert "the model has 48 positions: generating at most 7 tokens" in capsys.readouterr().err
    with pytest.raises(UsageError, match="the text has 49 tokens, but the model has 48 positions"):
        use_model.main([str(whole[0]), f"--generate={words} {' '.join(words.split()[:8])}"])


def test_a_split_where_nothing_counts_is_not_measured(whole, tmp_path, capsys):
    """Neither by itself nor in training, which goes on."""
    schema = clm_schema()
    columns = {split: clm_rows(schema, 12, 1) for split in ("train", "validation")}
    columns["validation"]["loss_weights"][:] = 0
    write_set(tmp_path / "set", schema, columns)
    shards = f"--shards={tmp_path / 'set'}"
    with pytest.raises(
        DataError, match="all loss_weights of split 'validation' are 0.*another --validation_split"
    ):
        use_model.main([str(whole[0]), "--evaluate", shards, "--batch_size=4"])
    main(flags(tmp_path / "set", tmp_path / "run", "--stop_after=5", "--evaluate_every=5"))
    assert "step 5: all loss weights of validation are 0: no evaluation" in capsys.readouterr().err


TRAINING = [
    (["--max_positions=15"], "--max_positions=15 has 15 positions, but rows of .* have 16 tokens"),
    (["--hidden_size=30", "--heads=4"], "--hidden_size=30 is not a multiple of --heads=4"),
    (["--activation=mish"], "--activation=mish is unknown: give one of relu, "),
    (["--norm=post"], "--norm=post: .*gpt2"),
    (["--embedding_size=8"], "--embedding_size=8: .*gpt2"),
    (["--batch_size=10", "--accumulation=4"], "not a multiple of --accumulation=4"),
    (["--train_split=dev"], "no split 'dev': it has train, validation"),
    (["--init_from=/no/such"], "--init_from=/no/such"),
    (["--log_to=paper"], "paper"),
]


@pytest.mark.parametrize("more, message", TRAINING)
def test_what_cannot_be_trained_is_refused(shards, tmp_path, more, message):
    with pytest.raises(UsageError, match=message):
        main([f"--shards={shards}", f"--output={tmp_path / 'run'}", *more])
    assert not (tmp_path / "run").exists()


USING = [
    (["--generate=w7", "--samples=2"], "--samples=2 would be the same text each"),
    (["--generate=w7", "--temperature=-1"], "--temperature=-1.0: must be at least 0"),
    (["--generate=w7", "--top_p=0"], "--top_p=0.0: must be above 0"),
    (["--generate=w7", "--max_new_tokens=0"], "--max_new_tokens=0: must be at least 1"),
    (["--evaluate", "--validation_split=dev"], "no split 'dev'"),
    (["--evaluate", "--batch_size=0"], "--batch_size=0: must be at least 1"),
    (["--evaluate", "--batch-size=0"], "--batch_size=0: must be at least 1"),
    ([], "nothing to do with .* give --evaluate, --export=DIR"),
    (["--evaluate", "--predict=texts"], "only classifiers label texts"),
    (["--checkpoint=all", "--generate=w7"], "--checkpoint=all works with --evaluate only"),
    (["--report=r.jsonl"], "--report=r.jsonl needs --evaluate"),
    (["--predictions=file"], "--predictions=file needs --predict=FILE"),
]


@pytest.mark.parametrize("arguments, message", USING)
def test_what_cannot_be_used_is_refused(shards, whole, arguments, message):
    with pytest.raises(UsageError, match=message):
        use_model.main([str(whole[0]), *arguments])


def test_sets_and_checkpoints_of_another_kind_are_refused(shards, whole, tmp_path):
    write_mlm_set(tmp_path / "mlm")
    mlm = f"--shards={tmp_path / 'mlm'}"
    for run in (lambda: main([mlm]), lambda: use_model.main([str(whole[0]), "--evaluate", mlm])):
        with pytest.raises(UsageError, match="rows of --task=mlm, and this trainer needs clm"):
            run()
    for path, message in (
        (shards, "neither the output directory of a run nor a directory with config.json"),
        (whole[0] / "checkpoints" / "7", "no checkpoint '7': its steps are 8, 12"),
    ):
        with pytest.raises(UsageError, match=message):
            use_model.main([str(path), "--generate=w7"])
    with pytest.raises(UsageError, match="a run of trainers.flax_clm, not of trainers.flax_mlm"):
        use_model.main([str(whole[0]), "--trainer=flax_mlm", "--evaluate"])


def test_help_costs_no_import_of_jax():
    code = (
        "import sys\nfrom trainers.flax_clm import main\n"
        "try:\n    main(['--help=all'])\n"
        "except SystemExit as leaving:\n    assert leaving.code == 0\n"
        "assert not {'jax', 'flax', 'orbax', 'matplotlib'} & set(sys.modules)"
    )
    found = process(code=code)
    assert found.returncode == 0, found.stderr
    for flag in ("--evaluate_every", "--dropout", "Architecture: "):
        assert flag in found.stdout
