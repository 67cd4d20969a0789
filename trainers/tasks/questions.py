"""The questions of a dataset's evaluation rows, with their gold answers. Python 3.8 syntax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from textmill.schemas.errors import DataError
from textmill.schemas.format.manifest import EVALUATION
from textmill.schemas.typed_json import parse_json
from textmill.trainers.data.shard_set import ShardSet


@dataclass(frozen=True)
class Question:
    """A question with its gold answers, () if it has none.

    Its name is its id in the source, else its row's `example_id`.
    """

    name: str
    question: str
    answers: tuple[str, ...]


def example_numbers(example_ids_Bx2: np.ndarray) -> list[int]:
    """A row's `example_id`, two halves, as one number: [[1, 2]] -> [4294967298]."""
    high, low = np.asarray(example_ids_Bx2).astype(np.uint64).T
    return (high << np.uint64(32) | low).tolist()


def read_questions(sets: Sequence[ShardSet]) -> dict[int, Question]:
    """Numbers of `example_id` to the questions of all evaluation rows of these datasets.

    If the source has one id twice, the second question is named by its `example_id`.

    Raises:
      DataError: a line is not in the format of build_shards; names it.
    """
    questions: dict[int, Question] = {}
    number_of: dict[str, int] = {}
    for shards in sets:
        if EVALUATION not in {file.path for file in shards.manifest.files}:
            continue  # the dataset has no evaluation split
        path = shards.locate(EVALUATION)
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    values = parse_json(line, "the line")
                    example_id = values["example_id"]
                    example = int(example_id, 16)
                    name = str(values["id"] or example_id)
                    if number_of.setdefault(name, example) != example:
                        name = example_id
                    answers = tuple(map(str, values["answers"]))
                    questions[example] = Question(name, values["question"], answers)
                except (DataError, ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        f"{path}: line {number:,} is not in the format of build_shards "
                        f"({error!r}): copy or build the dataset again"
                    ) from error
    return questions
