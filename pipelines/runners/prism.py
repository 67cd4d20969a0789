"""Where the program of Prism is, Beam's runner written in Go: `make prism` builds it.

Beam by itself would download one.
"""

import os
import shutil
import sys

from pipelines.runners.beam_flags import runner_flags
from schemas.errors import UsageError


def with_program(beam_arguments: list[str]) -> list[str]:
    """Arguments that name the program of the runner that they ask for, if that is Prism.

    Raises:
      UsageError: there is none, said before anything is planned.
    """
    flags = runner_flags(beam_arguments)
    if flags.job_endpoint or flags.is_embedded or not flags.is_prism:
        return beam_arguments
    return [*beam_arguments, f"--prism_location={find_program(flags.prism_location)}"]


def find_program(location: str | None) -> str:
    """Where the program is: as the user says, beside the Python interpreter, or on the PATH.

    Args:
      location: `--prism_location`.

    Raises:
      UsageError: it is nowhere, or no program.
    """
    if location:
        if not (os.path.isfile(location) and os.access(location, os.X_OK)):
            raise UsageError(
                f"--prism_location={location}: there is no program; give the path of a file that "
                "can be executed, such as `make prism` builds (nothing is downloaded)"
            )
        return location
    beside = os.path.join(os.path.dirname(sys.executable), "prism")  # of the virtual environment
    found = shutil.which(beside) or shutil.which("prism")
    if not found:
        raise UsageError(
            f"--runner=PrismRunner: its program is neither {beside} nor on the PATH; build it with "
            "`make prism` (this takes Go), or say where one is: --prism_location=PATH"
        )
    return found
