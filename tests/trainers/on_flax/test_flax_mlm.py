"""The trainer as a command: what it writes, resuming to the bit, interruption, refusals."""

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from schemas.errors import DataError, UsageError
from tests.tools.compile_cache import compiled_once
from tests.tools.places import ROOT
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set, write_set
from trainers import use_model
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import command, make_flags, parse_flags
from trainers.flax_mlm import FlaxMlmFlags, main
from trainers.run.checkpoints import Checkpoints
from trainers.run.run_directory import claim

STEPS, MANY_STEPS = "--steps=15", "--steps=100000"  # few values: each is another program
SMALL = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32", "--batch_size=4"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Equal programs are compiled once for all tests here, their processes included."""
    with compiled_once(tmp_path_factory.mktemp("compiled")):
        yield


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """40 training rows and 10 of validation, with masks."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_mlm_set(directory)
    return directory


def flags(shards, output, *more):
    return [f"--shards={shards}", f"--output={output}", *SMALL, *more]


def start(*arguments):
    """A process of the trainer."""
    return subprocess.Popen(
        [sys.executable, "-m", "trainers.flax_mlm", *arguments],
        cwd=ROOT,
        env=dict(os.environ, JAX_PLATFORMS="cpu"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train_losses(output):
    lines = read_metrics(str(output / "metrics.jsonl"))
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == list(range(1, len(steps) + 1))
    return [line["loss"] for line in lines if line["kind"] == "train"]


def assert_same_bits(one, other, step=15):
    """The checkpoints of two runs hold the same weights and the same optimizer's state."""
    (progress, *arrays), (others_progress, *others) = (
        Checkpoints(output).read(step) for output in (one, other)
    )
    assert progress["step"] == others_progress["step"] == step
    for ours, theirs in zip(arrays, others, strict=True):
        assert ours and theirs and list(ours) == list(theirs)
        for name, value in ours.items():
            assert value.tobytes() == theirs[name].tobytes(), name


def test_a_whole_run(shards, tmp_path, capsys):
    output = tmp_path / "run"
    main(flags(shards, output, STEPS, "--evaluate_every=4", "--checkpoint_every=6"))
    assert "checkpoint_every: 6\n" in (output / "config.yaml").read_text()
    lines = read_metrics(str(output / "metrics.jsonl"))
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train] == list(range(1, 16))
    assert train[0]["epoch"] == 0.1 and train[-1]["epoch"] == 1.5
    wanted = {"loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "waiting"}
    assert wanted <= set(train[0])
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [4, 8, 12, 15]
    stored = sum(
        b["masked_weights"].sum() for b in ShardSet(shards).in_order("validation", batch_size=4)
    )
    for line in evaluations:
        assert line["masked"] == stored  # every row of the split once
        assert line["perplexity"] == pytest.approx(np.exp(line["loss"]))
        assert 0 <= line["accuracy"] <= 1
    kept = sorted(path.name for path in (output / "checkpoints").iterdir())
    assert kept == ["12", "15"]  # the two newest
    assert (output / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert not list(output.glob("*.partial"))
    said = capsys.readouterr()
    for part in (
        "15 steps done",
        "last        step 15: loss",
        str(output / "loss.png"),
        "metrics.jsonl",
    ):
        assert part in said.out
    assert str(output / "checkpoints" / "15") in said.out
    assert "step 8: validation loss" in said.err


RESUMED = ["--masking=dynamic", "--dropout=0.1", "--accumulation=2"]


@pytest.mark.parametrize("more", [[], pytest.param(RESUMED, marks=pytest.mark.slow)])
def test_resume_is_identical_to_the_bit(shards, tmp_path, more):
    """15 steps (an epoch has 10) in one go; 3, then the rest; weights, optimizer, losses."""
    more = [*more, STEPS]
    main(flags(shards, tmp_path / "whole", *more))
    main(flags(shards, tmp_path / "parts", *more, "--stop_after=3"))
    main(flags(shards, tmp_path / "parts", *more, "--resume"))
    assert train_losses(tmp_path / "parts") == train_losses(tmp_path / "whole")
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_a_mixture_resumes_to_the_bit(shards, tmp_path, capsys):
    """15 steps by 0.75 and 0.25, in one go and in two; both sets' ends of an epoch lie inside."""
    write_mlm_set(tmp_path / "other", train=9, seed=1)
    mixed = f"{shards}:0.75,{tmp_path / 'other'}:0.25"
    main(flags(mixed, tmp_path / "whole", STEPS))
    said = capsys.readouterr().err
    assert f"75.00% of the rows from {shards}: 1.12 passes over its 40 in 15 steps" in said
    assert f"25.00% of the rows from {tmp_path / 'other'}: 1.67 passes over its 9" in said
    main(flags(mixed, tmp_path / "parts", STEPS, "--stop_after=3"))
    main(flags(mixed, tmp_path / "parts", STEPS, "--resume"))
    assert train_losses(tmp_path / "parts") == train_losses(tmp_path / "whole")
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")
    main(flags(shards, tmp_path / "plain", STEPS))
    assert train_losses(tmp_path / "plain") != train_losses(tmp_path / "whole")
    other_weights = mixed.replace("0.75", "0.5")
    with pytest.raises(UsageError, match="shards' fingerprint was"):
        main(flags(other_weights, tmp_path / "parts", STEPS, "--resume"))


def test_encoding_and_format_change_nothing(shards, tmp_path):
    main(flags(shards, tmp_path / "plain", STEPS))
    write_mlm_set(tmp_path / "set", encoding="int64_list", file_formats=("array_record",))
    main(flags(tmp_path / "set", tmp_path / "other", STEPS))
    assert train_losses(tmp_path / "other") == train_losses(tmp_path / "plain")


def test_dynamic_masks_of_whole_words_are_said_to_be_of_tokens(tmp_path, capsys):
    write_mlm_set(tmp_path / "set", mask_unit="word")
    more = [STEPS, "--stop_after=1", "--masking=dynamic"]
    main(flags(tmp_path / "set", tmp_path / "run", *more))
    assert "masks single tokens; the dataset's own masks are words" in capsys.readouterr().err


def test_a_checkpoint_is_measured_alike_whatever_the_flags(tmp_path):
    """Masks of an evaluation come of the set: its largest seed, and its rate or BERT's."""
    write_mlm_set(tmp_path / "set", static_masking=False, mask_rate=0.0, seed=(1 << 64) - 1)
    output, found = tmp_path / "run", []
    main(flags(tmp_path / "set", output, STEPS, "--seed=5", "--mask_rate=0.4"))
    for more in ([], ["--seed=6"], ["--mask_rate=0.3"]):
        use_model.main([str(output), "--evaluate", "--batch_size=4", *more])
        [path] = output.glob("evaluation/*/15/metrics.json")
        found.append(json.loads(path.read_text()))
    lines = read_metrics(str(output / "metrics.jsonl"))
    [trained] = [line for line in lines if line["kind"] == "evaluation"]
    for metrics in found:
        assert metrics["masked"] == trained["masked"]
        assert metrics["loss"] == pytest.approx(trained["loss"], rel=1e-6)
        assert metrics["accuracy"] == trained["accuracy"]


def test_resume_of_a_finished_run_only_says_so(shards, tmp_path, capsys):
    main(flags(shards, tmp_path / "run", STEPS))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    main(flags(shards, tmp_path / "run", STEPS, "--resume"))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    said = capsys.readouterr()
    assert "nothing to do: step 15 of 15 is done" in said.err
    assert said.out.count("15 steps done") == 2


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_from_the_last_checkpoint(shards, tmp_path):
    """SIGKILL leaves no time for anything: measurements beyond the checkpoint are measured anew."""
    output = tmp_path / "run"
    more = [MANY_STEPS, "--checkpoint_every=2"]
    process = start(*flags(shards, output, *more))
    wait_for_steps(process, output, 5)
    process.kill()
    process.communicate()
    read = len(read_metrics(str(output / "metrics.jsonl")))
    main(flags(shards, output, *more, "--resume", f"--stop_after={read + 2}"))
    main(flags(shards, tmp_path / "whole", MANY_STEPS, f"--stop_after={read + 2}"))
    assert train_losses(output) == train_losses(tmp_path / "whole")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_saves_and_says_how_to_go_on(shards, tmp_path, number, code):
    output = tmp_path / "run"
    process = start(*flags(shards, output, MANY_STEPS))
    wait_for_steps(process, output, 3)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    done = len(train_losses(output))
    assert (output / "checkpoints" / str(done)).is_dir()
    assert f"interrupted: the checkpoint after step {done} is in" in said
    again = shlex.split(said.strip().splitlines()[-1])
    assert again[:3] == ["python", "-m", "trainers.flax_mlm"] and "--resume" in again
    main([*again[3:], f"--stop_after={done + 1}"])
    assert len(train_losses(output)) == done + 1


def test_a_full_disk_leaves_the_checkpoint_before(shards, tmp_path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    main(flags(shards, tmp_path / "run", STEPS, "--stop_after=1"))
    with monkeypatch.context() as patch, pytest.raises(DataError) as refused:
        patch.setattr("trainers.run.checkpoints.os.fsync", full)
        main(flags(shards, tmp_path / "run", STEPS, "--stop_after=2", "--resume"))
    said = str(refused.value)
    assert "the checkpoint after step 2 cannot be written: [Errno 28] No space left" in said
    assert "The newest is after step 1; free some space, then add --resume" in said
    main(flags(shards, tmp_path / "run", STEPS, "--stop_after=2", "--resume"))
    assert len(train_losses(tmp_path / "run")) == 2


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_run(shards, tmp_path):
    """Files may grow to 8 KiB here, less than a checkpoint and more than all else."""
    code = (
        "import resource, signal, sys\nfrom schemas.commands.entry import run_entry\n"
        "from trainers.flax_mlm import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\nrun_entry(main)"
    )
    environment = {n: v for n, v in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
    found = subprocess.run(
        [sys.executable, "-c", code, *flags(shards, tmp_path / "run", STEPS, "--stop_after=2")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1
    said = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert "the checkpoint after step 2 cannot be written" in said[0]
    assert "File too large" in said[0]
    assert "The newest is after step 0; free some" in said[0]
    assert not (tmp_path / "run" / "checkpoints" / "2").exists()


def wait_for_steps(process, output, steps):
    for _ in range(600):
        if len(read_metrics(str(output / "metrics.jsonl"))) >= steps:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("no steps within a minute")


def test_one_run_at_a_time(shards, tmp_path):
    with claim(tmp_path / "run"), pytest.raises(UsageError, match="in use by another run"):
        main(flags(shards, tmp_path / "run", STEPS))


def test_a_second_run_is_refused_and_a_different_one_cannot_resume(shards, tmp_path):
    output = tmp_path / "run"
    main(flags(shards, output, STEPS, "--stop_after=1"))
    with pytest.raises(UsageError, match="holds a run already: add --resume"):
        main(flags(shards, output, STEPS))
    with pytest.raises(UsageError, match="hidden_size was 16, is 32"):
        main(flags(shards, output, "--hidden_size=32", "--resume"))
    with pytest.raises(UsageError, match="batch_size was 4, is 8; seed was 0, is 1"):
        main(flags(shards, output, "--resume", "--batch_size=8", "--seed=1"))
    write_mlm_set(tmp_path / "other", seed=7)
    with pytest.raises(UsageError, match="shards' fingerprint was"):
        main(flags(tmp_path / "other", output, "--resume"))
    write_mlm_set(tmp_path / "fewer", train=9)  # of the same schema
    schemas = [(place / "schema.json").read_bytes() for place in (shards, tmp_path / "fewer")]
    assert schemas[0] == schemas[1]
    with pytest.raises(UsageError, match="shards' fingerprint was"):
        main(flags(tmp_path / "fewer", output, "--resume"))
    (output / "config.json").unlink()
    with pytest.raises(UsageError, match="holds checkpoints but no config.json"):
        main(flags(shards, output, "--resume"))


def test_settings_that_may_change_are_named(shards, tmp_path, capsys):
    main(flags(shards, tmp_path / "run", STEPS, "--stop_after=1"))
    main(flags(shards, tmp_path / "run", "--steps=2", "--learning_rate=0.1", "--resume"))
    said = capsys.readouterr().err
    assert "note: learning_rate was 0.0005, is 0.1" in said
    assert "note: steps was 15, is 2" in said
    assert "stop_after" not in said


def test_without_a_validation_split(tmp_path, capsys):
    schema = mlm_schema(splits={"train": 1.0}, shards={"train": 1})
    write_set(tmp_path / "set", schema, {"train": packed_rows(schema, 8, 0)})
    main(flags(tmp_path / "set", tmp_path / "run", STEPS))
    said = capsys.readouterr()
    assert "split 'validation' has no rows: no evaluations; --validation_split names" in said.err
    assert "Validation" not in said.out


REFUSALS = [
    (["--max_positions=15"], "--max_positions=15 has 15 positions, but rows of .* have 16 tokens"),
    (["--hidden_size=30", "--heads=4"], "--hidden_size=30 is not a multiple of --heads=4"),
    (["--layers=0"], "--layers=0: must be at least 1"),
    (["--batch_size=10", "--accumulation=4"], "not a multiple of --accumulation=4"),
    (["--dropout=1"], "--dropout=1.0: must be at least 0"),
    (["--learning_rate=0"], "--learning_rate=0.0: must be above 0"),
    (["--mask_rate=0.3"], "no effect on the dataset's static masks: add --masking=dynamic"),
    (["--train_split=test"], "no split 'test': it has train, validation"),
    (["--seed=-1"], "--seed=-1: must be at least 0"),
]


@pytest.mark.parametrize("more, message", REFUSALS)
def test_refusals_name_value_and_remedy(shards, tmp_path, more, message):
    with pytest.raises(UsageError, match=message):
        main([f"--shards={shards}", f"--output={tmp_path / 'run'}", *more])
    assert not (tmp_path / "run").exists()


def test_static_masks_that_are_not_there_are_refused(tmp_path):
    write_mlm_set(tmp_path / "set", static_masking=False)
    with pytest.raises(UsageError, match="has no masks: use --masking=dynamic"):
        main(flags(tmp_path / "set", tmp_path / "run", "--masking=static"))


def test_an_output_that_cannot_be_made_is_refused(shards, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file or below one"):
        main(flags(shards, tmp_path / "file" / "run", "--steps=1"))


def test_exit_codes_and_no_traceback(tmp_path):
    write_mlm_set(tmp_path / "set")
    cases = [
        ([f"--shards={tmp_path}"], 1, "has no MANIFEST.json"),
        ([f"--shards={tmp_path / 'set'}", "--max_positions=9"], 2, "have 16 tokens"),
        ([f"--shards={tmp_path / 'set'}", "--no_such_flag"], 2, "no_such_flag"),
        (["--model=huge", "--shards=x"], 2, "huge"),
    ]
    for arguments, code, message in cases:
        process = start(*arguments)
        _, said = process.communicate()
        assert process.returncode == code and message in said and "Traceback" not in said


def test_help_costs_no_import_of_jax():
    code = (
        "import sys\nfrom trainers.flax_mlm import main\n"
        "try:\n main(['--help=all'])\nexcept SystemExit as leaving:\n assert leaving.code == 0\n"
        "assert not {'jax', 'flax', 'orbax', 'matplotlib'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "--evaluate_every" in found.stdout and "--no_verify" in found.stdout


def test_imports_no_tensorflow_and_no_beam():
    code = (
        "import sys, trainers.flax_mlm, trainers.on_flax.flax_encoder\n"
        "assert not {'tensorflow', 'apache_beam', 'torch', 'pipelines'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_the_command_gives_the_settings_back():
    flags = make_flags(
        FlaxMlmFlags,
        shards="a set",
        output="b",
        resume=True,
        verify=False,
        layers=3,
        masking="dynamic",
        epochs=0.5,
    )
    words = shlex.split(command(flags))
    assert words[:3] == ["python", "-m", "trainers.flax_mlm"]
    assert parse_flags(words[3:], FlaxMlmFlags) == flags
    assert "--resume" not in shlex.split(command(flags, resume=False))
