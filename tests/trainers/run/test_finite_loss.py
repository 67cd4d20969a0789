"""A loss that is no number stops the run, which leaves the batch behind."""

import math

import numpy as np
import pytest

from schemas.errors import DataError
from trainers.run.loop import check_finite

BATCH = {"row_index": np.array([7, 1 << 40]), "input_ids": np.array([[1, 2], [3, 4]], np.uint16)}


@pytest.mark.parametrize("loss, norm", [(math.nan, 1.0), (1.0, math.inf), (-math.inf, math.nan)])
def test_others_stop_and_leave_the_batch(tmp_path, loss, norm):
    with pytest.raises(DataError) as stopped:
        values = {"loss": loss, "gradient norm": norm}
        check_finite(values, BATCH, step=12, output=str(tmp_path), checkpoint=10)
    path = tmp_path / "stopped-at-step-12.npz"
    said = str(stopped.value)
    assert said.startswith(f"step 12: the loss is {loss} and the gradient norm is {norm}, on rows ")
    assert "on rows 7, 1099511627776 of the split" in said and str(path) in said
    assert "checkpoints up to step 10 are kept" in said
    assert path.exists(), "test_loop looks into it"


def test_of_many_rows_the_first_are_told(tmp_path):
    batch = {"row_index": np.arange(100)}
    with pytest.raises(DataError, match="62, 63 and 36 more of the split"):
        check_finite({"loss": math.nan}, batch, step=1, output=str(tmp_path), checkpoint=0)
