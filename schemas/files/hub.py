"""A name on the Hugging Face Hub, such as `gpt2`, as a flag's value -> a directory of this machine.

A path that exists always wins. Files come from huggingface_hub's cache, or are downloaded into it.
"""

import os
import re
import sys
from functools import partial
from typing import Any, NamedTuple

from textmill.schemas.commands.terminal import in_time, say
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.tokenizers.tokenizer_files import FILES, LINES, VOCABULARY, WHOLE

_NAME = re.compile(r"(?P<name>\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(?P<revision>\w[\w./-]*))?")
_PATIENCE = 8.0  # seconds until the Hub counts as not reachable


_TEMPLATES = ("chat_template.jinja", "additional_chat_templates/*.jinja")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
# By field: patterns of the files to download; files of which one makes a cached folder complete.
_FILES = {
    "tokenizer": ((*FILES, *_TEMPLATES), (WHOLE, VOCABULARY, LINES)),
    "init_from": ((*FILES, *_WEIGHTS, "model-*.safetensors"), _WEIGHTS),
}


class HubFolder(NamedTuple):
    """Where the files are, and what to record: `gpt2@607a30d783df...`, or a path as it was."""

    path: str
    recorded: str


def find_on_hub(value: str, *, field: str) -> HubFolder:
    """Finds the files of `NAME` or `NAME@REVISION` where `value` is not a path of this machine.

    Looks in huggingface_hub's cache first; else asks the Hub for at most 8 s, and downloads.

    Args:
      value: as the user gave it; what cannot be a name comes back as it is.
      field: tokenizer or init_from, which decides the files.

    Raises:
      UsageError: neither the cache nor the Hub has them; names the command that fetches them.
    """
    match = _NAME.fullmatch(value)
    if not match or os.path.lexists(value) or value.endswith((".json", ".txt")):
        return HubFolder(value, value)
    hub = _import_hub()
    name, revision, (patterns, either) = match["name"], match["revision"], _FILES[field]
    try:
        folder = hub.snapshot_download(
            name, revision=revision, allow_patterns=[*patterns], local_files_only=True
        )
        if any(os.path.exists(os.path.join(folder, file)) for file in either):
            return _folder_of(name, folder)
    except (hub.errors.LocalEntryNotFoundError, ValueError):  # ValueError: no name of the Hub
        pass
    commit = _ask_hub(value, name, revision, field)
    say(f"note: downloading {name} at commit {commit} from the Hugging Face Hub", sys.stderr)
    try:
        folder = hub.snapshot_download(name, revision=commit, allow_patterns=[*patterns])
    except Exception as error:  # whatever its transports raise
        raise _unavailable(value, name, field, f"its download failed ({error})") from error
    return _folder_of(name, folder)


def _import_hub() -> Any:
    # A second to import, which no local path needs.
    import huggingface_hub.errors

    return huggingface_hub


def _folder_of(name: str, folder: str) -> HubFolder:
    return HubFolder(folder, f"{name}@{os.path.basename(folder)}")  # snapshots/COMMIT


def _ask_hub(value: str, name: str, revision: "str | None", field: str) -> str:
    """The commit of a revision."""
    hub = _import_hub()
    api = hub.HfApi()
    try:
        # The time limit of a request does not include the look-up of the host's address.
        request = partial(api.model_info, name, revision=revision, timeout=_PATIENCE)
        return in_time(_PATIENCE, request).sha
    except (hub.errors.HfHubHTTPError, ValueError) as error:
        raise UsageError(
            f"{flag(field, value)}: no directory {value}, and the Hugging Face Hub has no model "
            "of this name that you may read: give a directory or another name (gated ones need "
            "`hf auth login`)"
        ) from error
    except Exception as error:  # whatever its transports raise
        why = "the Hugging Face Hub is not reachable"
        raise _unavailable(value, name, field, why) from error


def _unavailable(value: str, name: str, field: str, why: str) -> UsageError:
    folder = name.rpartition("/")[2]
    return UsageError(
        f"{flag(field, value)}: no directory {value}, and {why}: run `hf download {name} "
        f"--local-dir {folder}` and give {flag(field, folder)}"
    )
