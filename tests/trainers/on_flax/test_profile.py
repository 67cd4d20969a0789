"""--profile traces some steps of a run into its directory; no other trainer has it."""

import gzip
import json

import pytest

from tests.tools.clm_factory import write_clm_set
from textmill.schemas.errors import UsageError
from textmill.trainers import evaluate
from textmill.trainers.flags.command_line import make_flags, parse_flags
from textmill.trainers.flax_clm import FlaxClmFlags, main
from textmill.trainers.poptorch_classifier import PoptorchClassifierFlags
from textmill.trainers.tf_classifier import TfClassifierFlags

TINY = "--layers=1 --hidden_size=8 --heads=1 --intermediate_size=8 --batch_size=4".split()


@pytest.fixture
def run(tmp_path):
    write_clm_set(tmp_path / "set")

    def train(*flags):
        main([f"--shards={tmp_path / 'set'}", f"--output={tmp_path / 'run'}", *TINY, *flags])
        return sorted(path.name for path in (tmp_path / "run").rglob("perfetto_trace.json.gz"))

    return train


def test_a_trace_of_two_steps_and_none_of_an_evaluation(run, tmp_path, capfd):
    assert run("--steps=8", "--profile=2", "--stop_after=7")
    said = capfd.readouterr().out
    assert (
        f"  profile     {tmp_path / 'run/profile'}: open its perfetto_trace.json.gz at ui." in said
    )
    assert "--profile" not in said[said.index("  resume ") :]
    [path] = (tmp_path / "run/profile").rglob("perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert sum(name.endswith("Executable::ExecuteHelperOnSingleDevice") for name in names) == 2
    evaluate.main([str(tmp_path / "run")])
    assert " on validation of " in capfd.readouterr().out
    assert [*(tmp_path / "run").rglob("perfetto_trace.json.gz")] == [path]


@pytest.mark.slow
def test_a_run_that_ends_earlier_has_a_shorter_trace(run):
    assert run("--steps=5", "--profile=100")


def test_refused(run):
    with pytest.raises(UsageError, match="--profile=2: the trace begins after step 3, but the run"):
        run("--steps=3", "--profile=2")
    with pytest.raises(UsageError, match="--profile=0: must be at least 1"):
        make_flags(FlaxClmFlags, shards="set", profile=0)
    for flags in (TfClassifierFlags, PoptorchClassifierFlags):
        with pytest.raises(UsageError, match="unknown flag --profile=2"):
            parse_flags(["--shards=set", "--profile=2"], flags)
