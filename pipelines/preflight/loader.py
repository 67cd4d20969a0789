"""Unpickles a job as a worker would; `job.load_job` runs this in another interpreter."""

import json
import sys
from collections.abc import Callable
from typing import Any

from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.runners.pipeline_context import PipelineContext

from textmill.pipelines.user_filter import load_filter
from textmill.schemas.errors import TextmillError, flag


def main(argv: list[str]) -> None:
    """Loads a job's functions and coders, and a filter.

    Prints one line of JSON: how many were loaded, and the problems of the others.

    Args:
      argv: the path of a serialized pipeline, and `package.module:function` if there is a filter.
    """
    pickler.set_library("cloudpickle")  # Beam's default
    path, *filters = argv
    with open(path, "rb") as file:
        components = api.Pipeline.FromString(file.read()).components
    context, problems, loaded = PipelineContext(components), [], 0
    functions = {
        step.unique_name: api.ParDoPayload.FromString(step.spec.payload).do_fn.payload
        for step in components.transforms.values()
        if step.spec.urn == "beam:transform:pardo:v1"
    }
    calls: dict[str, tuple[Callable, Any]] = {
        f"the step {name}": (pickler.loads, data) for name, data in functions.items()
    }
    calls |= {f"the coder {name}": (context.coders.get_by_id, name) for name in components.coders}
    calls |= {flag("filter", name): (load_filter, name) for name in filters}
    for what, (load, argument) in calls.items():
        try:
            load(argument)
            loaded += 1
        except TextmillError as error:
            problems.append(error.marked)
        except Exception as error:
            problems.append(f"{what} does not load: {type(error).__name__}: {error}")
    sys.stdout.write(json.dumps({"loaded": loaded, "problems": problems}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
