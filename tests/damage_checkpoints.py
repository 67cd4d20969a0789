"""Damages checkpoints and uses them: `python -m tests.damage_checkpoints --trainer=tf_qa`.

A small run with the checkpoints of steps 2 and 4, and the best weights of step 3, is copied; a file
of it gets a byte flipped, a part zeroed, its end cut off, or is gone; then each thing is done that
reads checkpoints. It may end as with the whole run, to the bit, or with an error in words. Another
result, a traceback or ten minutes without an end are defects: exit code 1.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

sys.path.insert(0, str(Path(__file__).parent))  # as pytest does
from class_factory import write_class_set
from clm_factory import write_clm_set
from shard_factory import tokenizer_json, write_mlm_set

from schemas.errors import DataError, TextmillError, run_entry

HANGS_SECONDS = 600
FLAX = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32", "--batch_size=4"]
TF = [*FLAX[:3], "--batch_size=8", "--device=cpu", "--no_jit_compile"]
TORCH = [*FLAX[:4], "--batch_size=8", "--device=cpu"]
SIZES = {
    "flax_mlm": FLAX,
    "flax_clm": FLAX,
    "tf_classifier": TF,
    "tf_qa": TF,
    "poptorch_classifier": TORCH,
}
STEPS = ["--steps=6", "--checkpoint_every=2", "--evaluate_every=3", "--learning_rate=0.01"]
Way = tuple[list[str], tuple[str, ...]]  # arguments, and what of the folder is compared


@dataclass(frozen=True)
class Options:
    """How much is damaged."""

    trainer: Literal["flax_mlm", "flax_clm", "tf_classifier", "tf_qa", "poptorch_classifier"]
    """Whose checkpoints."""
    damages: int = 60
    """Each to a copy of its own."""
    seed: int = 1
    """Of the files and of what is done to them."""
    show: bool = False
    """Print each outcome with what was said."""


class Hung(BaseException):
    """It took too long; no handler of the trainer takes this for an error of its own."""


def main(argv: list[str]) -> None:
    """Makes the run, damages and uses its copies, prints what came of it."""
    options = tyro.cli(Options, prog="tests.damage_checkpoints", args=argv, use_underscores=True)
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="textmill-damaged-") as name:
        folder = Path(name)
        write_shards(options.trainer, folder / "set")
        ways = ways_of(options.trainer, folder)
        enter = import_module(f"trainers.{options.trainer}").main
        _call(enter, [*_training(options.trainer, folder), "--stop_after=4"])
        shutil.move(folder / "run", folder / "whole")
        due = {way: _use(enter, folder, ways[way])[1] for way in ways}
        counts = Counter[tuple[str, str]]()
        for number in range(options.damages):
            shutil.rmtree(folder / "damaged", ignore_errors=True)
            shutil.copytree(folder / "whole", folder / "damaged")
            damage = damage_one(folder / "damaged", draw)
            for way, arguments in ways.items():
                said, found = _use(enter, folder, arguments, "damaged")
                outcome = said.split("\n")[0]
                if outcome == "ended":
                    outcome = "as if whole" if found == due[way] else "ANOTHER RESULT"
                    outcome += " (went back)" if "It is kept as" in said else ""
                counts[way, outcome] += 1
                if options.show:
                    print(number, way, damage, said.replace(str(folder), "")[:1500], flush=True)
        print(f"{options.trainer}, {options.damages} damages, seed {options.seed}")
        for (way, outcome), count in sorted(counts.items()):
            print(f"{count:4} x {way}: {outcome}")
    defects = sum(
        count for (_, outcome), count in counts.items() if outcome.split(" (")[0].isupper()
    )
    if defects:
        raise DataError(f"{defects} defects")


def write_shards(trainer: str, directory: Path) -> None:
    """A small set of the trainer's task."""
    if trainer == "flax_mlm":
        write_mlm_set(directory)
    elif trainer == "flax_clm":
        write_clm_set(directory)
    elif trainer == "tf_qa":
        from question_factory import write_qa_set  # Beam, which nobody else needs

        from pipelines.encoding.tokenizer import LoadedTokenizer
        from pipelines.tasks.qa import Qa

        task = Qa(
            qa_template="w5 {question} w6 {context} w7 {answer}",
            qa_form="prefix",
            max_question_length=3,
            max_answer_length=4,
        )
        asked = [("w10", f"w{20 + n} w{30 + n}", [(f"w{30 + n}", 4)], str(n)) for n in range(30)]
        splits = {"train": asked[:24], "validation": asked[24:]}
        write_qa_set(directory, splits, task, LoadedTokenizer(tokenizer_json(70)), 24)
    else:
        write_class_set(directory)


def _training(trainer: str, folder: Path) -> list[str]:
    return [f"--shards={folder}/set", f"--output={folder}/run", *SIZES[trainer], *STEPS]


def ways_of(trainer: str, folder: Path) -> dict[str, Way]:
    """By name: what is done with a run, and which files tell whether it went well."""
    run, out, text = folder / "run", folder / "out", folder / "text.txt"
    text.write_text("w7 w8 w9\nw20 w21\n")
    training = _training(trainer, folder)
    use = [f"--output={run}", *SIZES[trainer][3:]]
    ways: dict[str, Way] = {"resume": ([*training, "--resume"], ("run/checkpoints",))}
    exported = ("out/model.safetensors",)
    export = [*training, "--resume", "--stop_after=4", f"--export={out}"]
    if trainer == "poptorch_classifier":
        export.remove("--stop_after=4")  # which exports at the very end only
        predicted = [f"--output={run}", f"--predict={text}", f"--predictions={out}", "--device=cpu"]
        return {**ways, "export": (export, exported), "predict": (predicted, ("out",))}
    ways["export"] = (export, exported)
    if trainer == "flax_clm":
        checkpoint = [f"--checkpoint={run}", f"--report={out}"]
        shards = [f"--shards={folder}/set", "--batch_size=4"]
        ways["evaluate_only"] = (["--evaluate_only", *checkpoint, *shards], ("out",))
    elif trainer == "tf_qa":
        ways["evaluate_only"] = ([*use, "--evaluate_checkpoints=all"], ("run/evaluation",))
    elif trainer == "tf_classifier":
        ways["evaluate_only"] = ([*use, "--evaluate_only"], ("run/evaluation",))
        predict = [f"--predict={text}", f"--predictions={folder}/out", f"--export={folder}/out2"]
        ways["predict"] = ([*use, *predict], ("out", "out2/model.safetensors"))
    return ways


def damage_one(run: Path, draw: random.Random) -> str:
    """Damages a file of the newest checkpoint or the best, large ones more often; says how."""
    parts = [*run.glob("checkpoints/*4"), *run.glob("checkpoints/*4.pt*"), *run.glob("best*")]
    files = sorted(
        path
        for part in parts
        for path in ([part] if part.is_file() else part.rglob("*"))
        if path.is_file()
    )
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
    """What was said of a copy of the run, the outcome first; and the sums of what came out."""
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
            enter(arguments)
        except TextmillError as error:
            outcome, words = "in words", str(error)
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
    """What a result holds, as sums: the newest checkpoint's values; files but for times in them."""
    if path.name == "checkpoints":
        return _state(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return "\n".join(
        sha256(_timeless(file)).hexdigest()
        for file in files
        if file.is_file() and file.suffix != ".png"
    )


def _timeless(file: Path) -> bytes:
    content = file.read_bytes()
    if not content.startswith(b'{"checkpoint"'):
        return content
    found = json.loads(content)
    return json.dumps([found["loss"], found["accuracy"], found["predicted"]]).encode()


def _state(directory: Path) -> str:
    """Of every value in a run's newest checkpoint."""
    newest = max(
        (
            path
            for path in directory.iterdir()
            if path.name.split("-")[-1].split(".")[0].isdecimal()
            and not path.name.endswith((".damaged", ".sha256"))
        ),
        key=lambda path: int(path.name.split("-")[-1].split(".")[0]),
    )
    if newest.suffix == ".pt":
        import torch

        found = torch.load(newest, weights_only=True)
        values = [*found["model"].values()]
        values += [v for s in found["optimizer"]["state"].values() for v in s.values()]
        arrays = [value.numpy() for value in values]
    elif (newest / "default").is_dir():
        import jax
        import orbax.checkpoint as ocp

        found = ocp.PyTreeCheckpointer().restore(newest / "default")
        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(found)]
    else:
        import tensorflow as tf

        reader = tf.train.load_checkpoint(str(newest / "state"))
        names = sorted(reader.get_variable_to_shape_map())
        arrays = [reader.get_tensor(n) for n in names if "VARIABLE_VALUE" in n]
    assert len(arrays) > 10
    return newest.name + " ".join(sha256(array.tobytes()).hexdigest() for array in arrays)


if __name__ == "__main__":
    run_entry(main)
