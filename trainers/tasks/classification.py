"""Classification: class weights, metrics, plots, and labels for texts. Python 3.8 syntax."""

import json
import os
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Dict,
    Iterable,
    Iterator,
    List,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np

from textmill.schemas.commands.terminal import say, visible
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.flags.run_flags import RunFlags, TaskFlags
from textmill.trainers.metrics import class_scores
from textmill.trainers.metrics.class_scores import probabilities
from textmill.trainers.models.set_tokenizer import open_tokenizer, sets_of
from textmill.trainers.run.program import Arrays, Metrics, Program, TrainingTask

LABEL, LOGITS, ROW_WEIGHTS = "label", "logits", "row_weights"
_ROWS_A_READ = 65_536  # to count labels
_FORMS = {
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.2%}",
    "auc": "AUC {:.4f}",
    "f1": "F1 {:.4f}",
    "ece": "ECE {:.4f}",
}


@dataclass(frozen=True)
class ClassificationFlags(TaskFlags):
    """The weights of classes, and the metric that chooses the best weights."""

    rows: ClassVar[str] = "classification"
    same_settings: ClassVar[Tuple[str, ...]] = ("class_weights",)

    best_by: Literal["accuracy", "auc", "f1", "loss", "none"] = "accuracy"
    class_weights: str = "none"
    """Weight of each class in the loss: none, balanced, or a number for each class as in 1,2.5.
    balanced weighs a class by the inverse of its frequency."""


class ClassificationTask(TrainingTask):
    """Cross-entropy over `classes`, each with its weight from `weights` in training."""

    unit, counts = "nats a row", "weight"

    def __init__(self, flags: RunFlags, schema: Schema, shards: Optional[BatchReader] = None):
        task = flags.task
        assert isinstance(task, ClassificationFlags)
        self.classes, self.best_by = tuple(schema.parameters["classes"]), task.measure
        self._split, self._class_weights = flags.data.train_split, task.class_weights
        self.weights = [1.0] * len(self.classes)
        self.head_share = 1 / schema.max_length

    def prepare_training(self, shards: BatchReader) -> List[str]:
        """Sets the weights of the classes; a line for each, with its rows in the training split."""
        counts = count_labels(shards, self._split)
        try:
            seen = _counts_as_read(shards, self._split, counts)
            self.weights = class_scores.class_weights(self._class_weights, seen)
        except ValueError as error:
            raise UsageError(
                f"{flag('class_weights', self._class_weights)}: {error} (classes: "
                f"{', '.join(self.classes)})"
            ) from error
        return [
            f"{name}: {count:,} training rows, weight {weight:.4g}"
            for name, count, weight in zip(self.classes, counts, self.weights)
        ]

    def meaning_of(self, schema: Schema) -> Dict[str, object]:
        """Classes, tokenizer and features."""
        return {
            "classes": schema.parameters["classes"],
            "tokenizer": schema.tokenizer_sha256,
            "features": [feature.name for feature in schema.features],
        }

    def predict(
        self,
        program: Program,
        schema: Schema,
        tokenizer_json: bytes,
        *,
        texts: str,
        predictions: Optional[str],
    ) -> None:
        """Writes a line with label and probability for each text, batch after batch."""
        rows_of = TextRows(schema, open_tokenizer(tokenizer_json))
        batches = rows_of.batches(read_texts(texts, schema), program.evaluation_rows)
        pairs = ((rows, program.evaluate(program.put(rows))()) for rows in batches)
        logits = (outputs[LOGITS][rows["row_weights"] == 1] for rows, outputs in pairs)
        write_predictions(logits, self.classes, predictions)

    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Metrics of all rows with equal weight; see `class_metrics`."""
        logits, labels = [np.zeros((0, len(self.classes)))], [np.zeros(0, np.int64)]
        for batch, outputs in batches:
            rows = {**batch, **outputs}  # outputs of all processes, with their labels
            is_real = rows[ROW_WEIGHTS] == 1
            logits.append(rows[LOGITS][is_real])
            labels.append(rows[LABEL][is_real])
        self._logits_BxC, self._label_B = np.concatenate(logits), np.concatenate(labels)
        self._metrics = class_scores.class_metrics(self._logits_BxC, self._label_B)
        return self._metrics

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line."""
        return ", ".join(form.format(metrics[n]) for n, form in _FORMS.items() if n in metrics)

    def write_files(self, folder: Path) -> None:
        """Draws confusion.png and reliability.png if all logits are finite."""
        if "accuracy" not in self._metrics:
            return
        chosen_B, classes = self._logits_BxC.argmax(axis=1), len(self.classes)
        confusion = class_scores.confusion_matrix(chosen_B, self._label_B, classes)
        title = f"accuracy {self._metrics['accuracy']:.2%} of {len(self._label_B):,} rows"
        class_scores.draw_confusion(confusion, self.classes, str(folder / "confusion.png"), title)
        bins = class_scores.calibration(probabilities(self._logits_BxC), self._label_B)
        class_scores.draw_reliability(bins, str(folder / "reliability.png"))


def count_labels(shards: BatchReader, split: str) -> List[int]:
    """Rows of each class in a split: from stats.json if its counts add up, else from the rows."""
    names, rows = shards.schema.parameters["classes"], shards.rows(split)
    stats = [part.stats.split(split) for part in sets_of(shards) if split in part.splits]
    counts = [sum(part.labels.get(name, 0) for part in stats) for name in names]
    if sum(counts) == rows:
        return counts
    counts = np.zeros(len(names), np.int64)
    for start in range(0, rows, _ROWS_A_READ):
        indices = np.arange(start, min(start + _ROWS_A_READ, rows))
        counts += np.bincount(shards.read(split, indices)[LABEL], minlength=len(names))
    return counts.tolist()


def _counts_as_read(shards: BatchReader, split: str, counts: List[int]) -> Sequence[float]:
    """The counts as training reads the rows: by the weights of a mixture, in the same sum."""
    if not isinstance(shards, Mixture):
        return counts
    shares = [
        float(weight) * np.array(count_labels(part, split)) / part.rows(split)
        for part, weight in zip(shards.parts, shards.weights)
        if split in part.splits and part.rows(split)
    ]
    return (shards.rows(split) * np.sum(shares, axis=0)).tolist()


Texts = Tuple[str, ...]  # one, or two of a pair


class RowPart(NamedTuple):
    """A special token of a row (side None), or a text (side 0 or 1)."""

    side: Optional[int]
    id: int  # of the special token
    type: int  # the token type of the part


class TextRows:
    """Texts to rows, cut and padded as the rows of a dataset."""

    def __init__(self, schema: Schema, tokenizer: Any):
        """Takes the schema of a classification dataset, and its tokenizer."""
        self._schema, self._tokenizer = schema, tokenizer
        self._truncation = schema.parameters["truncation"]
        normalize = schema.parameters.get("normalize", "none")
        self._normal_form = None if normalize == "none" else normalize.upper()
        if "text_pair_field" in schema.parameters:
            self._form = _pair_form(tokenizer)
        else:
            names = ("prefix_ids", "suffix_ids")
            before, after = ([RowPart(None, i, 0) for i in schema.parameters[n]] for n in names)
            self._form = [*before, RowPart(0, 0, 0), *after]
        self._room = schema.max_length - sum(part.side is None for part in self._form)

    def rows(self, texts: Sequence[Texts]) -> Batch:
        """Rows of texts or pairs, one segment each: the schema's features without labels."""
        schema = self._schema
        shape = len(texts), schema.max_length
        columns = {
            name: np.zeros(shape, schema.feature(name).dtype)
            for name in ("input_ids", "segment_ids", "token_type_ids")
            if any(feature.name == name for feature in schema.features)
        }
        columns["input_ids"][:] = schema.special_ids.get("pad", 0)
        sides = [self._encode([text[side] for text in texts]) for side in range(len(texts[0]))]
        for row, parts in enumerate(zip(*sides)):
            ids, types = self._fill_row(parts)
            columns["input_ids"][row, : len(ids)] = ids
            columns["segment_ids"][row, : len(ids)] = 1
            if "token_type_ids" in columns:
                columns["token_type_ids"][row, : len(ids)] = types
        return columns

    def batches(self, texts: Iterator[Texts], batch_size: int) -> Iterator[Batch]:
        """Batches of equal size; the last repeats its last text, with `row_weights` (uint8) 0."""
        while some := list(islice(texts, batch_size)):
            rows = self.rows(some + some[-1:] * (batch_size - len(some)))
            weights = np.arange(batch_size) < len(some)
            yield dict(rows, row_weights=weights.astype(np.uint8))

    def _encode(self, texts: Sequence[str]) -> List[List[int]]:
        if self._normal_form is not None:
            texts = [unicodedata.normalize(self._normal_form, text) for text in texts]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _fill_row(self, parts: Sequence[List[int]]) -> Tuple[List[int], List[int]]:
        lengths = _fit_lengths([len(part) for part in parts], self._room)
        ids: List[int] = []
        types: List[int] = []
        for part in self._form:
            piece = [part.id]
            if part.side is not None:
                piece = self._cut(parts[part.side], lengths[part.side])
            ids += piece
            types += [part.type] * len(piece)
        return ids, types

    def _cut(self, ids: List[int], length: int) -> List[int]:
        if length == len(ids):
            return ids
        head = {"head": length, "tail": 0, "head_tail": (length + 2) // 4}[self._truncation]
        return ids[:head] + ids[len(ids) - (length - head) :]


def _fit_lengths(lengths: List[int], room: int) -> List[int]:
    """Lengths that fit: the longer of two texts is cut until both are equal, then both are cut."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    shorter = min(*lengths, room // 2)
    longer = min(max(lengths), room - shorter)
    return [longer, shorter] if lengths[0] > lengths[1] else [shorter, longer]


def _pair_form(tokenizer: Any) -> List[RowPart]:
    """The template of the tokenizer's post-processor: BERT's `[CLS] $A [SEP] $B:1 [SEP]:1`."""
    encoding = tokenizer.encode("Hello", "Hello")
    form: List[RowPart] = []
    for side, number, kind in zip(encoding.sequence_ids, encoding.ids, encoding.type_ids):
        part = RowPart(side, number if side is None else 0, kind)
        if side is None or form[-1:] != [part]:
            form.append(part)
    return form


def read_texts(path: str, schema: Schema) -> Iterator[Texts]:
    """Texts of a file: its lines, or the dataset's text fields from JSON Lines (.jsonl).

    Blank lines of JSON are skipped. Pairs come from JSON Lines only.

    Raises:
      UsageError: the model needs pairs, and the file has plain lines.
      DataError: the file cannot be read, or a line lacks a text; names it.
    """
    names = ("text_field", "text_pair_field")
    fields = [schema.parameters[name] for name in names if name in schema.parameters]
    is_json = path.endswith(".jsonl")
    if len(fields) == 2 and not is_json:
        raise UsageError(
            f"{flag('predict', path)}: the model classifies pairs: give a .jsonl file with the "
            f"fields {' and '.join(fields)} in each line"
        )
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{flag('predict', path)}: line {number:,}"
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                    line_value = json.loads(text) if is_json and text.strip() else text
                    json.dumps(line_value, ensure_ascii=False).encode()  # no lone surrogates
                except (ValueError, RecursionError) as error:
                    kind = "JSON" if is_json else "UTF-8"
                    raise DataError(f"{where} is not {kind} ({error}): repair the file") from error
                if not is_json:
                    yield (text,)
                elif text.strip():
                    yield tuple(_field(line_value, name, where) for name in fields)
    except OSError as error:
        raise DataError(f"{flag('predict', path)} cannot be read: {error}") from error


def _field(line_value: Any, name: str, where: str) -> str:
    """The field `a.b`, else the field b of the object a, as build_shards reads it."""
    value = line_value.get(name) if isinstance(line_value, dict) else None
    if value is None:
        value = line_value
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        names = ", ".join(line_value) or "nothing" if isinstance(line_value, dict) else "no object"
        raise DataError(f"{where} has no text in the field {name!r}; it holds {names}")
    return value


def write_predictions(
    logits: Iterable[np.ndarray], classes: Sequence[str], path: Optional[str]
) -> None:
    """Writes a line "label, tab, probability" for each row of the batches of logits [B, C].

    The write is atomic; without a path the lines go to standard output.

    Raises:
      DataError: the file cannot be written.
    """
    names = [visible(name) for name in classes]  # a tab in a name would make a column
    rows = (row_C for batch_BxC in logits for row_C in probabilities(batch_BxC))
    lines = (f"{names[row_C.argmax()]}\t{row_C.max():.6f}" for row_C in rows)
    if path is None:
        for line in lines:
            say(line)
        return
    partial = path + ".partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(partial)
        raise DataError(f"{flag('predictions', path)} cannot be written: {error}") from error
