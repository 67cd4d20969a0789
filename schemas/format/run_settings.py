"""The settings of a trainer's run (config.json), which a resumed run needs. Python 3.8 syntax."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping

from textmill.schemas.typed_json import check

CONFIG_JSON = "config.json"


@dataclass(frozen=True)
class RunSettings:
    """The content of a run's config.json.

    Attributes:
      trainer: the trainer's name: flax_mlm.
      config: values of its flags.
      model: dimensions of the model.
      fingerprint: of the rows, see `Manifest.identify_rows`.
      sha256: of all other fields.
    """

    trainer: str
    config: Dict[str, Any]
    model: Dict[str, Any]
    fingerprint: str
    sha256: str

    def __post_init__(self) -> None:
        """Rejects a file that was edited."""
        expected = settings_sha256(self.plain())
        remedy = f"the other fields give {expected}: the file has changed since the run wrote it"
        check(self.sha256 == expected, "sha256", self.sha256, remedy)

    def plain(self) -> Dict[str, Any]:
        """All fields but `sha256`."""
        return {name: value for name, value in vars(self).items() if name != "sha256"}


def settings_sha256(settings: Mapping[str, Any]) -> str:
    """The sha256 of all fields of a run's settings except `sha256` itself."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
