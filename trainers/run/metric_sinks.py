"""Where measurements go besides metrics.jsonl: TensorBoard and Weights & Biases.

    sinks = open_sinks("tensorboard,wandb", "run", start_step=0, name="run", settings={})

Both packages are imported only when they are asked for.
"""

import importlib.util
import os
import uuid
from numbers import Real
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

from schemas.errors import UsageError

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by the name in --log_to


def parse_log_to(text: str) -> Tuple[str, ...]:
    """What `--log_to` means: "tensorboard,wandb" -> ("tensorboard", "wandb"); "" -> ().

    Raises:
      UsageError: a name is unknown or comes twice, or its package is not installed.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in _PACKAGES:
            raise UsageError(
                f"--log_to={text}: there is no {name!r}; give {' or '.join(_PACKAGES)}, or both "
                "with a comma between (metrics.jsonl is written in any case)"
            )
        if names.count(name) > 1:
            raise UsageError(f"--log_to={text}: {name} comes twice")
        package = _PACKAGES[name]
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--log_to={text}: the package {package} is not installed: pip install {package}"
            )
    return names


class MetricSink:
    """Something that takes measurements."""

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Takes one line of metrics.jsonl: `{"kind": "train", "step": 1, "loss": 10.8, ...}`."""
        raise TypeError(f"{type(self).__name__} takes no measurements")

    def close(self) -> None:
        """Writes out what is still held."""


def scalars(metrics: Mapping[str, Any]) -> Dict[str, float]:
    """The numbers of a line by their tag: {"kind": "train", "loss": 2.0} -> {"train/loss": 2.0}."""
    return {
        f"{metrics['kind']}/{name}": float(value)
        for name, value in metrics.items()
        if name not in ("kind", "step") and isinstance(value, Real) and not isinstance(value, bool)
    }


class TensorBoardSink(MetricSink):
    """Event files in OUTPUT/tensorboard; `tensorboard --logdir=OUTPUT` shows them."""

    def __init__(self, output: str, *, start_step: int):
        """Opens a new event file, which takes back what was measured after `start_step`."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(
            os.path.join(output, "tensorboard"),
            purge_step=start_step + 1 if start_step else None,
            filename_suffix=f".{start_step}",  # files are named by the second
        )

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Writes a point for every number."""
        for tag, value in scalars(metrics).items():
            self._writer.add_scalar(tag, value, metrics["step"])

    def close(self) -> None:
        """Writes out and closes the file."""
        self._writer.close()


class WandbSink(MetricSink):
    """A run of Weights & Biases, one for an output directory however often it is resumed."""

    def __init__(self, output: str, *, name: str, settings: Mapping[str, Any]):
        """Starts the run, or goes on with it; WANDB_MODE=offline needs no account.

        Raises:
          UsageError: the service cannot be reached, or nobody is logged in.
        """
        import wandb

        id_file = Path(output, "wandb_id")
        if not id_file.exists():
            id_file.write_text(uuid.uuid4().hex[:8] + "\n", encoding="utf-8")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "textmill"),
                name=name,
                dir=output,
                id=id_file.read_text(encoding="utf-8").strip(),
                resume="allow",
                config=dict(settings),
            )
        except wandb.Error as error:
            raise UsageError(
                f"--log_to=wandb: {error}. Log in with `wandb login`, or keep the run here with "
                "WANDB_MODE=offline and send it later with `wandb sync`"
            ) from error
        # By our own count of steps: wandb's may not go back, and a resumed run's does.
        self._run.define_metric("*", step_metric="step")

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Logs every number against the step."""
        self._run.log(dict(scalars(metrics), step=metrics["step"]))

    def close(self) -> None:
        """Ends the run."""
        self._run.finish()


def open_sinks(
    log_to: str, output: str, *, start_step: int, name: str, settings: Mapping[str, Any]
) -> List[MetricSink]:
    """Opens what `--log_to` names, for a run in `output` that did `start_step` steps before.

    The run's name and settings are for the people who look at Weights & Biases.
    """
    makers: Dict[str, Callable[[], MetricSink]] = {
        "tensorboard": lambda: TensorBoardSink(output, start_step=start_step),
        "wandb": lambda: WandbSink(output, name=name, settings=settings),
    }
    return [makers[sink]() for sink in parse_log_to(log_to)]
