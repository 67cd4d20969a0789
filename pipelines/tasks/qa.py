"""Question answering by a decoder: a prompt of question and context, then the answer.

Training rows hold the windows of a context that contain the answer. An evaluation row holds one
question with the context's first window, and has room for the longest answer.

tokens + repeated + specials - truncated = tokens in rows. `tokens` counts the template, the whole
question, the whole context and the first answer once. `truncated` counts tokens of the question
beyond --max_question_length, tokens of the context in no window and, in evaluation rows, tokens of
the answer beyond --max_answer_length. `repeated` counts tokens of a window that an earlier window
of the document has too. Legend: D documents, E examples (windows), P parts of an example.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.rows.evaluation import evaluation_lines
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import Ragged, join_slices, ranges
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.tasks.questions import (
    EVERY,
    FIRST,
    HOLDING,
    NONE,
    Questions,
    QuestionTemplate,
    Slot,
    Windows,
    choose_windows,
    name_of,
    tokenize_questions,
)
from textmill.pipelines.tasks.task import (
    Columns,
    Examples,
    RowProblem,
    Segments,
    Surroundings,
    Task,
    need_special,
    problems_where,
)
from textmill.schemas.commands.values import spelled
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.format.features import MAX_TOKENS, is_training, token_dtype
from textmill.schemas.format.metadata import Schema

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer


@dataclass(frozen=True)
class Qa(Task):
    """Rows for decoders, which read a question and generate its answer."""

    title: ClassVar[str] = "question answering"
    trainer: ClassVar[str] = "tf_qa"
    ids_differ: ClassVar[bool] = True

    question_field: str = "question"
    """The field with the question."""
    context_field: str = "context"
    """The field with the text that contains the answer."""
    answers_field: str = "answers"
    """The field with the answers, as in SQuAD; the first one is trained on."""
    id_field: str = "id"
    """The field with the question's id, if it has one."""
    qa_form: Literal["causal", "prefix"] = "causal"
    """How tokens of the prompt attend to each other. causal: as in a plain decoder. prefix:
    in both directions."""
    qa_template: Annotated[QuestionTemplate, spelled(QuestionTemplate, "TEMPLATE")] = (
        QuestionTemplate("Question: {question} Context: {context} answer: {answer}")
    )
    """The text of a row, from {question}, {context} and, at its end, {answer}."""
    max_question_length: int = 64
    """Maximum tokens of a question; the rest is truncated and counted."""
    max_answer_length: int = 40
    """Maximum tokens of an answer. Training questions with a longer one are rejected; in evaluation
    rows the answer is truncated."""
    window_stride: int = 128
    """Tokens from one window of a long context to the next; fewer if the answer would be cut."""
    bos: bool = False
    """Begin each question with the tokenizer's bos token."""
    packing: Literal["best_fit", "none"] = "best_fit"
    """How questions are packed into training rows; evaluation rows always have one. best_fit: many
    per row, little padding. none: one per row."""

    def __post_init__(self) -> None:
        """Rejects invalid values."""
        super().__post_init__()
        for name in ("max_question_length", "max_answer_length", "window_stride"):
            if not 1 <= getattr(self, name) < MAX_TOKENS:
                raise FieldError(name, getattr(self, name), f"from 1 to {MAX_TOKENS - 1}")

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The parts of the template, each a literal and a field."""
        return self.qa_template.slots

    def roles(self) -> tuple[Role, ...]:
        """A question, its context, its answers and its id."""
        return (
            Role("question", "string", self.question_field),
            Role("context", "string", self.context_field),
            Role("answers", "answers", self.answers_field),
            Role("id", "id", self.id_field, optional=True),
        )

    def identity(self) -> tuple[str, ...]:
        """All roles, the id included: official scores need an answer to each id."""
        return tuple(role.name for role in self.roles())

    def routed_by(self) -> tuple[str, ...]:
        """The context, so that questions about one context are in one split."""
        return ("context",)

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires eos, and room for a context beside the longest question and answer."""
        need_special(tokenizer, "eos", use="ends an answer")
        if self.bos:
            need_special(tokenizer, "bos", instead=f"drop {flag('bos', True)}")
        literals = pa.array([slot.literal for slot in self.slots], pa.large_string())
        around = len(tokenizer.encode(literals).values) + self.bos + 1
        least = around + self.max_question_length + self.max_answer_length + 1
        if max_length < least:
            raise UsageError(
                f"{flag('max_length', max_length)} leaves no room for a context beside {around} "
                f"tokens of the template, {flag('max_question_length', self.max_question_length)} "
                f"and {flag('max_answer_length', self.max_answer_length)}: use "
                f"{flag('max_length', least)} or more, or lower these limits"
            )
        return super().schema_fields(tokenizer, max_length)

    def packing_of(self, split: str, schema: Schema) -> str:
        """Evaluation rows have one question each."""
        return schema.packing if is_training(split) else "none"

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Makes an example of each window: `Question: .. Context: .. answer: .. </s>`."""
        questions = tokenize_questions(documents, self.slots, tokenizer)
        length_D = self._lengths(questions, schema.max_length, is_trained_D)
        rejects = self._rejects(documents, questions, length_D, is_trained_D)
        has_answer_D = questions.end_D > questions.begin_D
        wanted_D = np.where(is_trained_D, np.where(has_answer_D, HOLDING, EVERY), FIRST)
        wanted_D[list(rejects)] = NONE
        windows = choose_windows(
            wanted_D,
            length_D=questions.length_D["context"],
            room_D=length_D["context"],
            start_D=questions.begin_D,
            stop_D=questions.end_D,
            stride=self.window_stride,
        )
        ids, offsets = self._join(questions, length_D, windows, tokenizer, schema)
        document_E, part_E, fresh_E = windows.document_W, windows.part_W, windows.fresh_W()
        specials_E = np.full(len(part_E), 1 + self.bos)
        in_windows_D = np.bincount(document_E, fresh_E, len(wanted_D)).astype(np.int64)
        truncated_D = questions.length_D["context"] - in_windows_D
        for name in ("question", "answer"):
            truncated_D += questions.length_D[name] - length_D[name]
        scalars = {
            "part": part_E,
            "specials": specials_E,
            "truncated": np.where(part_E == 0, truncated_D[document_E], 0),
            "repeated": np.where(part_E > 0, np.diff(offsets) - specials_E - fresh_E, 0),
            "prompt": np.diff(offsets) - length_D["answer"][document_E] - 1,
        }
        evaluation = _evaluation(documents, document_E, is_trained_D)
        ragged = {"ids": (ids, offsets), "evaluation": evaluation}
        return Examples(document_E, ragged, scalars, rejects)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Makes a segment of each window; the answer and eos have loss weights."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        prompt_S = examples.scalar("prompt")
        loss_weights = np.zeros(len(ids), np.uint8)
        loss_weights[ranges(offsets[:-1] + prompt_S, np.diff(offsets) - prompt_S)] = 1
        beside = {"loss_weights": loss_weights}
        if schema.parameters["qa_form"] == "prefix":
            beside["prefix_mask"] = 1 - loss_weights
        is_evaluated_S = np.diff(examples.ragged("evaluation", "uint8")[1]) > 0
        prompt_length_S = np.where(is_evaluated_S, prompt_S, 0).astype(np.uint16)
        return Segments(
            ids,
            offsets,
            np.arange(len(prompt_S)),
            beside=beside,
            scalars={"prompt_length": prompt_length_S},
        )

    def _lengths(
        self, questions: Questions, max_length: int, is_trained_D: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Field to int64 [D], its maximum tokens in a row; the context gets the rest.

        Evaluation rows reserve room for the longest answer, which a model may generate.
        """
        question_D = np.minimum(questions.length_D["question"], self.max_question_length)
        answer_D = np.minimum(questions.length_D["answer"], self.max_answer_length)
        fixed = sum(length for _, length in questions.literals) + self.bos + 1
        reserved_D = np.where(is_trained_D, answer_D, self.max_answer_length)
        room_D = max_length - fixed - question_D - reserved_D
        return {"question": question_D, "context": room_D, "answer": answer_D}

    def _rejects(
        self,
        documents: Documents,
        questions: Questions,
        length_D: dict[str, np.ndarray],
        is_trained_D: np.ndarray,
    ) -> dict[int, tuple[str, str]]:
        """Adds questions that cannot be trained on to those with wrong answers."""
        rejects = dict(questions.rejects)
        is_bare_D = pc.equal(documents.columns["context"], "").to_numpy(zero_copy_only=False)
        for question in np.flatnonzero(is_bare_D).tolist():
            rejects[question] = "empty_context", f"{name_of(documents, question)}: empty context"
        own_D, span_D = questions.length_D["answer"], questions.end_D - questions.begin_D
        room_D = length_D["context"]
        too_long_D = (own_D > self.max_answer_length) | (span_D > room_D)
        for question in np.flatnonzero(is_trained_D & too_long_D).tolist():
            detail = (
                f"its answer has {own_D[question]:,} tokens, more than {flag('max_answer_length')}"
            )
            if own_D[question] <= self.max_answer_length:
                detail = (
                    f"its answer takes {span_D[question]:,} tokens of the context, but a row has "
                    f"room for {room_D[question]:,}"
                )
            message = f"{name_of(documents, question)}: {detail}"
            rejects.setdefault(question, ("answer_too_long", message))
        return rejects

    def _join(
        self,
        questions: Questions,
        length_D: dict[str, np.ndarray],
        windows: Windows,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
    ) -> Ragged:
        """The ids of each window's row, in the order of the template."""
        specials = tokenizer.special_ids["eos"], tokenizer.special_ids.get("bos", 0)
        pool = np.append(questions.pool, specials).astype(token_dtype(schema.vocab_size))
        eos_at, bos_at = len(pool) - 2, len(pool) - 1
        document_E = windows.document_W
        parts: list[tuple[Any, Any]] = [(bos_at, 1)] * self.bos
        for slot, literal in zip(self.slots, questions.literals, strict=True):
            start_E = questions.start_D[slot.field][document_E]
            length_E = length_D[slot.field][document_E]
            if slot.field == "context":
                start_E, length_E = start_E + windows.start_W, windows.stop_W - windows.start_W
            parts += [literal, (start_E, length_E)]
        parts.append((eos_at, 1))
        bounds_2xExP = np.stack(
            [[np.broadcast_to(value, len(document_E)) for value in part] for part in parts], axis=2
        )
        return join_slices(pool, *bounds_2xExP)

    @classmethod
    def surroundings(cls, schema: Schema, tokenizer: "LoadedTokenizer") -> Surroundings:
        """bos, if --bos is set, and eos."""
        ids = schema.special_ids
        return (ids["bos"],) * schema.parameters["bos"], (ids["eos"],)

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks that the end of each segment, and only it, has loss weights; and the prompts."""
        segment_ids, weights = columns["segment_ids"], columns["loss_weights"]
        is_token, counts = segment_ids > 0, weights > 0
        yield from problems_where(
            weights > is_token,
            lambda row, i: (
                f"loss_weights[{i}] is {weights[row, i]}, not 0 or 1"
                if is_token[row, i]
                else f"loss_weights[{i}] is {weights[row, i]} in padding"
            ),
        )
        goes_on = np.zeros(segment_ids.shape, bool)
        goes_on[:, :-1] = segment_ids[:, 1:] == segment_ids[:, :-1]
        after = np.zeros(segment_ids.shape, bool)
        after[:, :-1] = counts[:, 1:]
        yield from problems_where(
            goes_on & counts & ~after,
            lambda row, i: (
                f"loss_weights[{i + 1}] is 0 after 1: the answer is the end of segment "
                f"{segment_ids[row, i]}"
            ),
        )
        yield from problems_where(
            is_token & ~goes_on & ~counts,
            lambda row, i: (
                f"loss_weights[{i}] is 0 at the end of segment {segment_ids[row, i]}: the segment "
                "has no answer"
            ),
        )
        is_prompt = is_token & ~counts
        if "prefix_mask" in columns:
            prefix_mask = columns["prefix_mask"]
            yield from problems_where(
                prefix_mask != is_prompt,
                lambda row, i: (
                    f"prefix_mask[{i}] is {prefix_mask[row, i]}, not {int(is_prompt[row, i])}: "
                    "it must be 1 on the prompt and 0 elsewhere"
                ),
            )
        length, prompt_B = columns["prompt_length"], is_prompt.sum(axis=1)
        if is_training(split):
            prompt_B = np.zeros_like(prompt_B)
        yield from problems_where(
            (length != prompt_B)[:, None],
            lambda row, _: f"prompt_length is {length[row]}, not {prompt_B[row]}",
        )
        if not is_training(split):
            yield from problems_where(
                segment_ids > 1,
                lambda row, i: (
                    f"segment_ids[{i}] is {segment_ids[row, i]}, but {split} has one question "
                    "per row"
                ),
            )


def _evaluation(documents: Documents, document_E: np.ndarray, is_trained_D: np.ndarray) -> Ragged:
    """The lines of evaluation.jsonl; empty for training questions."""
    is_evaluated_E = ~is_trained_D[document_E]
    columns = documents.columns.select(["id", "question", "answers"])
    evaluated = columns.take(pa.array(document_E[is_evaluated_E]))
    answers = evaluated["answers"]
    number = pc.list_value_length(answers).to_numpy()
    offsets = pa.array(np.append(0, np.cumsum(number)), pa.int32())
    fields = {
        "id": evaluated["id"],
        "question": evaluated["question"],
        "answers": pa.ListArray.from_arrays(offsets, answers.flatten().field("text")),
        "is_impossible": pa.array(number == 0),
    }
    objects = pa.StructArray.from_arrays([*fields.values()], [*fields])
    return evaluation_lines(objects, is_evaluated_E)
