"""What a run of flax_mlm becomes depends neither on where it stopped nor on its devices."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from schemas.errors import DataError
from tests.tools.compile_cache import compiled_once
from tests.tools.places import ROOT
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import write_mlm_set
from trainers.data.shard_set import ShardSet
from trainers.flax_mlm import main
from trainers.run.checkpoints import Checkpoints

SMALL = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32", "--batch_size=4"]
SMALL += ["--steps=6", "--masking=dynamic"]

# Runs in a process of its own: the number of devices is fixed when JAX starts.
SEVERAL = """
import sys
from pathlib import Path
import jax
from trainers.flax_mlm import main
from trainers.run.checkpoints import Checkpoints
assert len(jax.local_devices()) == 2
whole, parts, moved, *flags = sys.argv[1:]
main([*flags, f"--output={whole}"])
main([*flags, f"--output={parts}", "--stop_after=3"])
main([*flags, f"--output={parts}", "--resume"])
main([*flags, f"--output={moved}", "--resume"])

(_, *ours), (_, *others) = (Checkpoints(Path(output)).read(6) for output in (whole, parts))
for one, other in zip(ours, others, strict=True):
    assert one.keys() == other.keys() and one
    assert all(value.tobytes() == other[name].tobytes() for name, value in one.items())
"""
# Killed when everything of the checkpoint after step 4 is written but its name.
KILLED = """
import os, signal, sys
from trainers.flax_mlm import main
def note(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("checkpoints/4"):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(note)
main(sys.argv[1:])
"""


def process(code, *arguments, **environment):
    """A fresh interpreter that runs `code`."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Of a run on 40 rows; equal programs are compiled once for all processes here."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_mlm_set(directory)
    with compiled_once(tmp_path_factory.mktemp("compiled")):
        yield [f"--shards={directory}", *SMALL]


def measured(output):
    """Of every training step: its number, tokens, masked tokens and loss."""
    lines = read_metrics(str(output / "metrics.jsonl"))
    names = ("step", "tokens", "masked", "loss")
    return [tuple(line[name] for name in names) for line in lines if line["kind"] == "train"]


@pytest.mark.slow
def test_devices_may_change_and_batches_do_not(flags, tmp_path):
    """One device for six steps; two for six, for three and three; one for three, then two."""
    one, moved = tmp_path / "one", tmp_path / "moved"
    main([*flags, f"--output={one}"])
    main([*flags, f"--output={moved}", "--stop_after=3"])
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    found = process(
        SEVERAL,
        *(whole, parts, moved, *flags),
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert found.returncode == 0, found.stderr
    assert "2 x cpu, float32" in found.stderr and "resuming after step 3 of 6" in found.stderr
    assert measured(parts) == measured(whole)  # the same number of devices: the same bits
    reference = measured(one)
    assert measured(moved)[:3] == reference[:3]
    for output in (whole, moved):  # another: the same rows and masks, sums in another order
        for ours, theirs in zip(measured(output), reference, strict=True):
            assert ours[:3] == theirs[:3]
            assert ours[3] == pytest.approx(theirs[3], rel=1e-5)


@pytest.mark.slow
def test_killed_while_a_checkpoint_is_written(flags, tmp_path):
    """The half checkpoint is no checkpoint; the run goes on from the whole one before it."""
    output = tmp_path / "run"
    more = [f"--output={output}", "--checkpoint_every=2"]
    found = process(KILLED, *flags, *more)
    assert found.returncode == -signal.SIGKILL, found.stderr
    left = sorted(path.name for path in (output / "checkpoints").iterdir())
    assert left == ["2", "4.partial"]
    assert Checkpoints(output).latest == 2
    main([*flags, *more, "--resume"])
    main([*flags, f"--output={tmp_path / 'whole'}"])
    assert measured(output) == measured(tmp_path / "whole")
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["4", "6"]


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_batch(flags, tmp_path):
    wild = ["--learning_rate=1e30", "--clip_norm=0", "--warmup_steps=1"]
    output = tmp_path / "run"
    with pytest.raises(DataError, match="the loss is (nan|inf).*lower --learning_rate") as stopped:
        main([*flags, f"--output={output}", *wild])
    step = int(re.match(r"step (\d+): ", str(stopped.value))[1])  # type: ignore[index]
    shards = ShardSet(flags[0].removeprefix("--shards="))
    *_, batch = shards.batches("train", batch_size=4, seed=0, stop_step=step)
    assert f"on rows {', '.join(map(str, batch['row_index']))} of the split" in str(stopped.value)
    with np.load(output / f"stopped-at-step-{step}.npz") as saved:
        for name, column in batch.items():
            np.testing.assert_array_equal(saved[name], column)
    assert json.loads((output / "metrics.jsonl").read_text().splitlines()[-1])["step"] < step
