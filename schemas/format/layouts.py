"""Column layouts of other trainers, for exports of the pipelines and adapters of the trainers.

    check_layout("huggingface", schema)                 # raises if the layout cannot hold the rows
    LAYOUTS["huggingface"](batch)                       # new columns of B rows

huggingface, for models of `transformers`, which shift the labels of decoders themselves:

    input_ids     [5, 6, 2, 8, 2, 0]          int32
    labels        [-100, 6, 2, -100, 2, -100] int64; -100 for no loss
    position_ids  [0, 1, 2, 0, 1, 0]          int32; for decoders, to separate documents

maxtext, for its `loss_fn`, which does not shift:

    inputs                [5, 6, 2, 8, 2, 0]  int32, like all others
    inputs_position       [0, 1, 2, 0, 1, 0]
    inputs_segmentation   [1, 1, 1, 2, 2, 0]  0 is padding
    targets               [6, 2, 0, 2, 0, 0]  the next token of the same document, or 0
    targets_position      [0, 1, 2, 0, 1, 0]  equal to inputs_position: MaxText does not shift it
    targets_segmentation  [1, 1, 0, 2, 0, 0]  0 for no loss

llm_foundry, for the `text` loader of LLM Foundry, which separates documents by their eos:

    tokens        [5, 6, 2, 8, 2, 9]          int32, of rows without padding between documents

Legend: B rows, L tokens of a row.
"""

from types import MappingProxyType
from typing import Callable, Dict, Mapping

import numpy as np

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.features import positions_from_segments
from textmill.schemas.format.metadata import Schema

Batch = Dict[str, np.ndarray]
NO_LOSS = -100  # PyTorch's cross_entropy ignores such labels


def huggingface(batch: Batch) -> Batch:
    """Keyword arguments for a model of `transformers`, from rows of any task.

    For decoders (rows with `loss_weights`): `input_ids`, `labels`, `position_ids`. There is no
    `attention_mask`: only without one, and with use_cache=False, do the models separate documents
    by their positions. Each padding token has position 0, as a document of one token without a
    label.

    For encoders, whose rows hold one document: `input_ids`, `attention_mask` [B, L] uint8, 1 for
    tokens and 0 for padding, `token_type_ids` for pairs of texts, and `labels`: the class, int64
    [B], or the masked ids, if there are any. There are no positions, since models differ in the
    first position.

    For encoder-decoders: the same, with `labels` from `target_ids`.

    Args:
      batch: decoded columns of B rows for which `check_layout` passes.
    """
    input_ids, segment_ids = batch["input_ids"].astype(np.int32), batch["segment_ids"]
    if "loss_weights" in batch:
        positions = positions_from_segments(segment_ids)
        # Models shift whole rows, so the document before it would predict a first token.
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
    """The columns for MaxText's loss, from rows of decoders: six of int32 [B, L].

    MaxText's own pipeline shifts whole packed rows, and so trains the last token of a document to
    predict the first of the next. Here, a target is in the same document as its input.

    Args:
      batch: decoded columns of B rows for which `check_layout` passes.
    """
    segments = batch["segment_ids"].astype(np.int32)
    positions = positions_from_segments(segments)
    targets, targets_segments = np.zeros_like(segments), np.zeros_like(segments)
    continues = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    targets[:, :-1] = np.where(continues, batch["input_ids"][:, 1:], 0)
    counts = continues & (batch["loss_weights"][:, 1:] > 0)
    targets_segments[:, :-1] = np.where(counts, segments[:, 1:], 0)
    return {
        "inputs": batch["input_ids"].astype(np.int32),
        "inputs_position": positions,
        "inputs_segmentation": segments,
        "targets": targets,
        "targets_position": positions,
        "targets_segmentation": targets_segments,
    }


def llm_foundry(batch: Batch) -> Batch:
    """The column of LLM Foundry's StreamingTextDataset, from rows of clm: int32 [B, L].

    The loader finds the documents of a row by their last token (`eos_token_id`), and trains on
    every token that is not the tokenizer's padding.
    """
    return {"tokens": batch["input_ids"].astype(np.int32)}


LAYOUTS: Mapping[str, Callable[[Batch], Batch]] = MappingProxyType(
    {"huggingface": huggingface, "llm_foundry": llm_foundry, "maxtext": maxtext}
)


def check_layout(layout: str, schema: Schema) -> None:
    """Checks that a layout can hold rows without loss.

    Raises:
      UsageError: it cannot; the message has the reason and a remedy.
    """
    names = {feature.name for feature in schema.features}
    problem = ""
    if layout == "llm_foundry":
        if schema.task != "clm":
            problem = f"holds tokens without weights, as rows of clm do; these are of {schema.task}"
        elif schema.packing != "concat":
            problem = (
                "has no mark for padding within a row: build the dataset with "
                f"{flag('packing', 'concat')}"
            )
    elif "prefix_mask" in names:
        problem = (
            "has no prefix_mask, so attention on the prompt would not be bidirectional: build the "
            f"dataset with {flag('qa_form', 'causal')}"
        )
    elif "loss_weights" in names:
        return
    elif layout == "maxtext":
        problem = f"needs rows of decoders, with loss_weights; these are of {schema.task}"
    elif schema.packing != "none":
        problem = (
            f"cannot separate the documents of a row of {schema.task}: only decoders of "
            f"transformers do so by positions; build the dataset with {flag('packing', 'none')}"
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
