"""A SavedModel on disk, whole or not at all."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import DataError
from trainers.models.hf_files import refuse_existing
from trainers.on_tf.backend import tf

SIGNATURE = "serving_default"
EXTRA = "assets.extra"  # TensorFlow's place for files that are none of its own


def write_module(path: str, module: tf.Module, serve: Any, extra: Mapping[str, bytes]) -> None:
    """Writes a module with one signature.

    Args:
      path: not there yet, or empty.
      module: with its variables.
      serve: its concrete function.
      extra: files to lie beside, by name.

    Raises:
      UsageError: the path is taken.
      DataError: it cannot be written.
    """
    refuse_existing(path, flag="--export_saved_model")
    partial = os.path.abspath(path) + ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        tf.saved_model.save(module, partial, signatures={SIGNATURE: serve})
        for name, content in extra.items():
            file = Path(partial, EXTRA, name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        os.rename(partial, path)
    except (OSError, tf.errors.OpError) as error:
        raise DataError(f"--export_saved_model={path} cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
