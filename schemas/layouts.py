"""Rows in the layouts of other trainers, which exports write and adapters hand over.

They stand in the contract since both pipelines and trainers read them; numpy only.

    check_layout("huggingface", schema)                 # refuses what the layout cannot say
    LAYOUTS["huggingface"](batch)                       # the columns of B rows, anew

huggingface, for models of `transformers`, which shift the labels of decoders themselves:

    input_ids     [5, 6, 2, 8, 2, 0]          int32
    labels        [-100, 6, 2, -100, 2, -100] int64; -100 where no loss is taken
    position_ids  [0, 1, 2, 0, 1, 0]          int32; of decoders, whose documents they keep apart

maxtext, for its `loss_fn`, which shifts nothing:

    inputs                [5, 6, 2, 8, 2, 0]  int32, as all others
    inputs_position       [0, 1, 2, 0, 1, 0]
    inputs_segmentation   [1, 1, 1, 2, 2, 0]  0 is padding
    targets               [6, 2, 0, 2, 0, 0]  the next token of the same document, or 0
    targets_position      [0, 1, 2, 0, 1, 0]  those of the inputs, which MaxText shifts neither
    targets_segmentation  [1, 1, 0, 2, 0, 0]  0 where no loss is taken

Legend: B rows, L tokens a row.
"""

from types import MappingProxyType
from typing import Callable, Dict, Mapping

import numpy as np

from schemas.errors import UsageError
from schemas.features import positions_from_segments
from schemas.metadata import Schema

Batch = Dict[str, np.ndarray]
NO_LOSS = -100  # PyTorch's cross_entropy leaves such labels out


def huggingface(batch: Batch) -> Batch:
    """What a model of `transformers` takes as keyword arguments, for rows of any task.

    Of decoders (rows with `loss_weights`): `input_ids`, `labels`, `position_ids`. There is no
    `attention_mask`, since only without one, and with use_cache=False, do the models read from the
    positions which tokens are of one document. Padding is at position 0 each, a document a token,
    without a label.

    Of encoders, whose rows hold one document: `input_ids`, `attention_mask` [B, L] uint8, 1 for
    tokens and 0 for padding, `token_type_ids` of a pair of texts, and `labels`: the class, int64
    [B], or the ids that were masked, if they were; no positions, since models differ in the first.

    Of encoders with decoders: the same, with the labels of `target_ids`.

    Args:
      batch: columns of B rows, decoded; `check_layout` tells whether the layout suits them.
    """
    input_ids, segment_ids = batch["input_ids"].astype(np.int32), batch["segment_ids"]
    if "loss_weights" in batch:
        positions = positions_from_segments(segment_ids)
        # Models shift rows whole: a first token would be predicted from the document before it.
        counts = (batch["loss_weights"] > 0) & (positions > 0)
        labels = _labels(batch["input_ids"], counts)
        return {"input_ids": input_ids, "labels": labels, "position_ids": positions}
    converted = {"attention_mask": (segment_ids > 0).astype(np.uint8), "input_ids": input_ids}
    if "token_type_ids" in batch:
        converted["token_type_ids"] = batch["token_type_ids"].astype(np.int32)
    if "label" in batch:
        converted["labels"] = batch["label"].astype(np.int64)
    elif "target_ids" in batch:
        converted["labels"] = _labels(batch["target_ids"], batch["target_segment_ids"] > 0)
    elif "masked_ids" in batch:
        converted["labels"] = _masked_labels(batch)
    return converted


def maxtext(batch: Batch) -> Batch:
    """What MaxText's loss takes, for rows of decoders: six columns int32 [B, L].

    MaxText's own pipeline shifts packed rows whole, and so trains the last token of a document to
    predict the first of the next; here, a target is of the same document as its input.

    Args:
      batch: columns of B rows, decoded; `check_layout` tells whether the layout suits them.
    """
    segments = batch["segment_ids"].astype(np.int32)
    positions = positions_from_segments(segments)
    targets, targets_segments = np.zeros_like(segments), np.zeros_like(segments)
    goes_on = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    targets[:, :-1] = np.where(goes_on, batch["input_ids"][:, 1:], 0)
    counts = goes_on & (batch["loss_weights"][:, 1:] > 0)
    targets_segments[:, :-1] = np.where(counts, segments[:, 1:], 0)
    return {
        "inputs": batch["input_ids"].astype(np.int32),
        "inputs_position": positions,
        "inputs_segmentation": segments,
        "targets": targets,
        "targets_position": positions,
        "targets_segmentation": targets_segments,
    }


LAYOUTS: Mapping[str, Callable[[Batch], Batch]] = MappingProxyType(
    {"huggingface": huggingface, "maxtext": maxtext}
)


def check_layout(layout: str, schema: Schema) -> None:
    """Refuses rows that a layout could not say all of.

    Raises:
      UsageError: names the layout, what it lacks and what to do instead.
    """
    names = {feature.name for feature in schema.features}
    problem = ""
    if "prefix_mask" in names:
        problem = (
            "has no place for prefix_mask, and a prompt that is to be read both ways would be read "
            "one way: build the set with --qa_form=causal"
        )
    elif "loss_weights" in names:
        return
    elif layout == "maxtext":
        problem = f"is of decoders, whose rows have loss_weights; these are of {schema.task}"
    elif schema.packing != "none":
        problem = (
            f"cannot keep documents of one row apart in rows of {schema.task}: models of "
            "transformers read that from positions in decoders only. Build the set with "
            "--packing=none"
        )
    if problem:
        raise UsageError(f"layout {layout} {problem}")


def _labels(ids_BxL: np.ndarray, counts_BxL: np.ndarray) -> np.ndarray:
    return np.where(counts_BxL, ids_BxL.astype(np.int64), NO_LOSS)


def _masked_labels(batch: Batch) -> np.ndarray:
    labels = np.full(batch["input_ids"].shape, NO_LOSS, np.int64)
    rows, slots = np.nonzero(batch["masked_weights"])
    labels[rows, batch["masked_positions"][rows, slots]] = batch["masked_ids"][rows, slots]
    return labels
