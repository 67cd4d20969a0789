"""The program of a Flex Template's launcher: `python flex_template.py --input=... --runner=...`.

The image has TEXTMILL_COMMAND, the command of its template, and TEXTMILL_IMAGE, its own name, from
which the workers start, too.
"""

import os

from textmill.pipelines.flex_template import launch
from textmill.schemas.commands.entry import run_entry

if __name__ == "__main__":
    command, image = os.environ["TEXTMILL_COMMAND"], os.environ.get("TEXTMILL_IMAGE", "")
    run_entry(lambda argv: launch(command, image, argv))
