"""Damages checkpoints and uses them.

    python -m tests.stress.damage_checkpoints --trainer=tf_qa

A small run with the checkpoints of steps 2 and 4, and the best weights of step 3, is copied; a file
of it gets a byte flipped, a part zeroed, its end cut off, or is gone; then everything is done that
reads checkpoints. It may end as with the whole run, to the bit, or with a clear error. Another
result, a traceback or ten minutes without an end are defects: exit code 1.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import DataError, TextmillError
from tests.stress.attempts import Found, TrainerOptions, file_sum, run_stress, state_sums
from tests.tools.trainer_list import ListedTrainer
from trainers import use_model

HANGS_SECONDS = 600
STEPS = [
    *("--steps=6", "--checkpoint_every=2", "--evaluate_every=3"),
    *("--learning_rate=0.01", "--best_by=loss"),
]
Way = tuple[list[str], tuple[str, ...]]  # arguments, and what of the folder is compared


@dataclass(frozen=True)
class Options(TrainerOptions):
    """The number of damages."""

    damages: int = 60
    """Damages of each trainer's run, each to a copy of its own."""
    show: bool = False
    """Print each outcome with its messages."""


class Hung(BaseException):
    """It took too long; no handler of the trainer takes this for an error of its own."""


def damage(options: Options, folder: Path, draw: random.Random, found: Found) -> None:
    """Damages a run of each trainer."""
    for trainer in options.trainers:
        (folder / trainer.name).mkdir()
        _damage_run(trainer, options, folder / trainer.name, draw, found)


def _damage_run(
    trainer: ListedTrainer, options: Options, folder: Path, draw: random.Random, found: Found
) -> None:
    """Makes the run, damages and uses its copies."""
    trainer.write_set(folder / "set")
    ways, enter = ways_of(trainer, folder), trainer.main
    _call(enter, [*_training(trainer, folder), "--stop_after=4"])
    shutil.move(folder / "run", folder / "whole")
    due = {}
    for way, arguments in ways.items():
        said, due[way] = _use(enter, folder, arguments)
        if not said.startswith("ended"):
            raise DataError(f"{way} of a whole run: {said}")
    for number in range(options.damages):
        shutil.rmtree(folder / "damaged", ignore_errors=True)
        shutil.copytree(folder / "whole", folder / "damaged")
        what = damage_one(folder / "damaged", draw)
        for way, arguments in ways.items():
            said, result = _use(enter, folder, arguments, "damaged")
            outcome = said.split("\n")[0]
            if outcome == "ended":
                outcome = "as if whole" if result == due[way] else "ANOTHER RESULT"
            if outcome.isupper():
                found.defects.append(f"{way} after {what}: {outcome}")
            outcome += " (went back)" if "It is kept as" in said else ""
            found.counts[way, outcome] += 1
            if options.show:
                print(number, way, what, said.replace(str(folder), "")[:1500], flush=True)


def _training(trainer: ListedTrainer, folder: Path) -> list[str]:
    return [f"--shards={folder}/set", f"--output={folder}/run", *trainer.small, *STEPS]


def ways_of(trainer: ListedTrainer, folder: Path) -> dict[str, Way]:
    """Uses of a run by name, each with the paths of its result."""
    run, out, text = folder / "run", folder / "out", folder / "text.txt"
    text.write_text("w7 w8 w9\nw20 w21\n")
    training = _training(trainer, folder)
    use = [str(run), "--batch_size=4"]
    export = [*training, "--resume", "--stop_after=4", f"--export={out}"]
    exported = ("out/model.safetensors",)
    ways: dict[str, Way] = {
        "resume": ([*training, "--resume"], ("run/checkpoints", "run/best")),
        "resume and export": (export, exported),
        "export": ([*use, f"--export={out}"], exported),
        "export the last": ([*use, f"--export={out}", "--checkpoint=last"], exported),
        "evaluate all": ([*use, "--evaluate", "--checkpoint=all"], ("run/evaluation",)),
    }
    if trainer.predicts:
        predict = [*use, f"--predict={text}", f"--predictions={out}", f"--export={folder}/out2"]
        ways["predict and export"] = (predict, ("out", "out2/model.safetensors"))
    return ways


def damage_one(run: Path, draw: random.Random) -> str:
    """Damages a file of the newest checkpoint or the best, large ones more often; says how."""
    files = sorted([*run.glob("checkpoints/4/*"), *run.glob("best/*/*")])
    weights = [1.0] * len(files)
    if draw.random() < 0.5:
        weights = [float(path.stat().st_size) for path in files]
    [path] = draw.choices(files, weights)
    content = bytearray(path.read_bytes())
    kind = draw.choice(["flip", "flip", "zeros", "cut", "gone"]) if content else "gone"
    place = draw.randrange(len(content)) if content else 0
    if kind == "gone":
        path.unlink()
    else:
        if kind == "flip":
            content[place] ^= 1 << draw.randrange(8)
        elif kind == "zeros":
            content[place : place + 512] = bytes(len(content[place : place + 512]))
        else:
            del content[place:]
        path.write_bytes(content)
    return f"{path.relative_to(run)} {kind} at {place}"


def _use(enter: Callable, folder: Path, way: Way, of: str = "whole") -> tuple[str, str]:
    """The messages of a use of a copy, the outcome first; and the sums of its result."""
    for name in ("run", "out", "out2"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copytree(folder / of, folder / "run")
    arguments, compared = way
    said = _call(enter, arguments)
    if not said.startswith("ended"):
        return said, ""
    return said, "\n".join(_sums(folder / name) for name in compared)


def _call(enter: Callable, arguments: list[str]) -> str:
    def hung(*_: object) -> None:
        raise Hung

    signal.signal(signal.SIGALRM, hung)
    signal.alarm(HANGS_SECONDS)
    with tempfile.TemporaryFile("w+") as file, _written_to(file.fileno()):
        outcome, words = "ended", ""
        try:
            (enter if arguments[0].startswith("-") else use_model.main)(arguments)
        except TextmillError as error:
            outcome, words = "a clear error", str(error)
        except Hung:
            outcome = "HANG"
        except BaseException as error:  # noqa: BLE001  all that a user would see as a traceback
            outcome, words = "TRACEBACK", "".join(traceback.format_exception(error)[-2:])
        signal.alarm(0)
        sys.stdout.flush()
        sys.stderr.flush()
        file.seek(0)
        logged = file.read()
    if "Traceback" in logged and outcome != "TRACEBACK":
        outcome = "TRACEBACK LOGGED"
    return f"{outcome}\n{words}\n{logged[-3000:]}"


@contextmanager
def _written_to(number: int) -> Iterator[None]:
    """Standard output and error go to a file, those of libraries too."""
    kept = [os.dup(1), os.dup(2)]
    os.dup2(number, 1)
    os.dup2(number, 2)
    yield
    for stream, copy in enumerate(kept, 1):
        os.dup2(copy, stream)
        os.close(copy)


def _sums(path: Path) -> str:
    """The sums of all files of a result but plots."""
    if path.name in ("checkpoints", "best"):  # other files there tell how the run came to its end
        return str(state_sums(path.parent)[path.name])
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return "\n".join(
        f"{file.parent.name}/{file.name} {file_sum(file)}"
        for file in files
        if file.is_file() and file.suffix != ".png"
    )


if __name__ == "__main__":
    run_stress(damage, Options)
