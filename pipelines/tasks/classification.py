"""Classification of texts, or of pairs of texts: one document per row.

Texts are truncated once, here, and truncated tokens are counted: tokens + specials - truncated =
tokens in rows. Legend: D documents, E examples (documents that have tokens), T texts of an example,
P parts of an example: texts and special tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.rows.evaluation import evaluation_lines
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import Ragged, join_slices
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.tasks.class_names import ClassNames
from textmill.pipelines.tasks.task import (
    Columns,
    Examples,
    RowProblem,
    Segments,
    Surroundings,
    Task,
    need_room,
    problems_where,
)
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.commands.values import spelled, take_values
from textmill.schemas.errors import DataError, FieldError, UsageError
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.metadata import Schema

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

SPECIAL = -1  # the side of a special token
_SHOWN = 20  # the most classes that a message lists
_BEGINNING = 40  # characters of a text that name a document without an id


class FormPart(NamedTuple):
    """A part of the form in which a tokenizer's post-processor writes one text or two.

    Attributes:
      side: 0 or 1 for a whole text, SPECIAL for a special token.
      id: the id of the special token; 0 for a text.
      type: the token type of all tokens of the part.
    """

    side: int
    id: int
    type: int


Form = tuple[FormPart, ...]


@dataclass(frozen=True)
class Classification(Task):
    """Rows for classifiers: one text or pair of texts, and its class."""

    title: ClassVar[str] = "classification"
    trainer: ClassVar[str] = "tf_classifier"
    wraps_segments: ClassVar[bool] = True
    packing: ClassVar[str] = "none"

    text_field: str = "text"
    """The field with the text."""
    text_pair_field: str = ""
    """The field with the second text, to classify pairs."""
    label_field: str = "label"
    """The field with the label; the label of a text file is the name of its directory."""
    id_field: str = "id"
    """The field with the document's id, if it has one, for evaluation.jsonl."""
    classes: Annotated[ClassNames, spelled(ClassNames, "LABEL,...", of_list=ClassNames)] = (
        ClassNames()
    )
    """The labels in the order of their numbers: neg,pos or a JSON list. Default: all labels of the
    inputs, sorted."""
    class_names: Annotated[ClassNames, spelled(ClassNames, "NAME,...", of_list=ClassNames)] = (
        ClassNames()
    )
    """Names of the classes, in the order of --classes or of the sorted labels: negative,positive
    for the labels 0 and 1. Default: the labels."""
    truncation: Literal["head", "tail", "head_tail"] = "head"
    """The part of a long text that is kept. head_tail: a quarter from its start, the rest from its
    end (Sun et al., 2019). The longer text of a pair is cut first, until both are equally long."""

    def __post_init__(self) -> None:
        """Refuses names that are not one for each label, once the labels are known."""
        take_values(self)
        names, labels = self.class_names, self.classes
        if names and labels and len(names) != len(labels):
            reason = (
                f"{number_of(len(names), 'name')} for {number_of(len(labels), 'label')} "
                f"({_list_some(labels)}): give one name for each, in this order"
            )
            raise FieldError("class_names", names, reason)

    @property
    def names(self) -> ClassNames:
        """The names of the classes: those that were given, or the labels."""
        return self.class_names or self.classes

    def complete(self, values_of: Callable[[Role], tuple[str, ...]]) -> Self:
        """Takes all labels of the inputs as classes, unless --classes is set."""
        if self.classes:
            return self
        [role] = (role for role in self.roles() if role.values.is_folder)
        labels = values_of(role)
        if len(labels) < 2:
            raise FieldError(
                "label_field",
                self.label_field,
                f"the only label in the inputs is {next(iter(labels))!r}: name the field with the "
                "label, or list all classes",
            )
        return replace(self, classes=ClassNames(labels, is_json=True))

    def roles(self) -> tuple[Role, ...]:
        """A text, a second text for pairs, a label and an optional id."""
        pair = (Role("text_pair", "string", self.text_pair_field),) if self.text_pair_field else ()
        return (
            Role("text", "string", self.text_field),
            *pair,
            Role("label", "label", self.label_field),
            Role("id", "id", self.id_field, optional=True),
        )

    def routed_by(self) -> tuple[str, ...]:
        """The texts, so that equal texts with different labels are in the same split."""
        return tuple(role.name for role in self.roles() if role.values.is_text)

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires room for text, and for pairs a separator or token types."""
        form = self._form(tokenizer)
        added = sum(part.side == SPECIAL for part in form)
        texts = len(self.routed_by())
        need_room(max_length, added, texts)
        prefix, middle, suffix = ids_between(form)
        if texts == 2 and not middle and len({part.type for part in form}) == 1:
            raise UsageError(
                "the tokenizer does not separate the two texts of a pair: use one whose "
                "post-processor has a template for pairs, such as `[CLS] $A [SEP] $B:1 [SEP]:1`"
            )
        parameters = {
            "classes": list(self.names),
            **({"labels": list(self.classes)} if self.class_names else {}),
            "truncation": self.truncation,
            "prefix_ids": prefix,
            **({"middle_ids": middle} if self.text_pair_field else {}),
            "suffix_ids": suffix,
        }
        return super().schema_fields(tokenizer, max_length) | {"parameters": parameters}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Encodes and truncates: `<s> text </s>` or `<s> text </s> </s> text_pair </s>`."""
        encoded = [tokenizer.encode(documents.columns[name]) for name in self.routed_by()]
        length_DxT = np.stack([ids.lengths for ids in encoded], axis=1)
        label_D, rejects = self._labels(documents)
        is_good_D = length_DxT[:, 0] > 0
        is_good_D[list(rejects)] = False
        document_E = np.flatnonzero(is_good_D)
        form = self._form(tokenizer)
        specials = sum(part.side == SPECIAL for part in form)
        length_ExT = length_DxT[document_E]
        kept_ExT = longest_first(length_ExT, schema.max_length - specials)
        dtype = token_dtype(schema.vocab_size)
        ids, types = fill_form(
            form,
            [ids.astype(dtype) for ids in encoded],
            document_E,
            head_ExT=self._head(length_ExT, kept_ExT),
            kept_ExT=kept_ExT,
        )
        ragged = {
            "ids": ids,
            "evaluation": self._evaluation(documents, document_E, label_D, is_trained_D),
        }
        if self.text_pair_field:
            ragged["types"] = types
        scalars = {
            "specials": np.full(len(document_E), specials),
            "truncated": (length_ExT - kept_ExT).sum(axis=1),
            "label": label_D[document_E],
        }
        return Examples(document_E, ragged, scalars, rejects)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Makes a segment of each example."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        beside = {}
        if "text_pair_field" in schema.parameters:
            beside["token_type_ids"] = examples.ragged("types", "uint8")[0]
        return Segments(
            ids,
            offsets,
            np.arange(len(offsets) - 1),
            beside=beside,
            scalars={"label": examples.scalar("label")},
        )

    def _form(self, tokenizer: "LoadedTokenizer") -> Form:
        if self.text_pair_field:
            return pair_form(tokenizer)
        return single_form(tokenizer.prefix_ids, tokenizer.suffix_ids)

    def _labels(self, documents: Documents) -> tuple[np.ndarray, dict[int, tuple[str, str]]]:
        """Class numbers int64 [D], -1 for unknown labels; and the rejected documents."""
        known = self.classes
        labels = documents.columns["label"]
        numbers = pc.index_in(labels, value_set=pa.array(list(known), labels.type))
        label_D = numbers.fill_null(-1).to_numpy().astype(np.int64)
        rejects = {}
        for document in np.flatnonzero(label_D < 0).tolist():
            name = documents.columns["id"][document].as_py()
            which = f"id {name}" if name else repr(documents.text[document].as_py()[:_BEGINNING])
            detail = (
                f"label {labels[document].as_py()!r} is not one of the classes {_list_some(known)}"
            )
            rejects[document] = "unknown_label", f"{which}: {detail}"
        return label_D, rejects

    def _head(self, length_ExT: np.ndarray, kept_ExT: np.ndarray) -> np.ndarray:
        """How many of the kept tokens are from the start of the text."""
        if self.truncation == "head":
            return kept_ExT
        if self.truncation == "tail":
            return np.zeros_like(kept_ExT)
        # As published: 128 of 510.
        return np.where(kept_ExT < length_ExT, (kept_ExT + 2) // 4, kept_ExT)

    def _evaluation(
        self,
        documents: Documents,
        document_E: np.ndarray,
        label_D: np.ndarray,
        is_trained_D: np.ndarray,
    ) -> Ragged:
        """Lines of evaluation.jsonl, {"id": "17", "label": "pos"}; empty for training examples."""
        is_evaluated_E = ~is_trained_D[document_E]
        document = document_E[is_evaluated_E]
        ids = documents.columns["id"].take(pa.array(document))
        labels = pa.array(list(self.names), pa.large_string()).take(pa.array(label_D[document]))
        objects = pa.StructArray.from_arrays([ids, labels], ["id", "label"])
        return evaluation_lines(objects, is_evaluated_E)

    @classmethod
    def surroundings(cls, schema: Schema, tokenizer: "LoadedTokenizer") -> Surroundings:
        """The ids before the first text and after the last."""
        if "middle_ids" not in schema.parameters:
            return super().surroundings(schema, tokenizer)
        before, _, after = ids_between(pair_form(tokenizer))
        return tuple(before), tuple(after)

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks that labels are classes, and that padding has the token type 0."""
        label_B, classes = columns["label"], schema.parameters["classes"]
        yield from problems_where(
            (label_B >= len(classes))[:, None],
            lambda row, _: (
                f"label is {label_B[row]}, but there are {len(classes)} classes, from 0 on"
            ),
        )
        if "token_type_ids" in columns:
            types = columns["token_type_ids"]
            yield from problems_where(
                (columns["segment_ids"] == 0) & (types != 0),
                lambda row, i: f"token_type_ids[{i}] is {types[row, i]} in padding, not 0",
            )


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)


def single_form(prefix_ids: Sequence[int], suffix_ids: Sequence[int]) -> Form:
    """The form of one text, with one token type: `<s> $A </s>`."""
    before, after = ([FormPart(SPECIAL, i, 0) for i in ids] for ids in (prefix_ids, suffix_ids))
    return (*before, FormPart(0, 0, 0), *after)


def pair_form(tokenizer: "LoadedTokenizer") -> Form:
    """The form in which the post-processor writes pairs: BERT's `[CLS] $A [SEP] $B:1 [SEP]:1`.

    Raises:
      DataError: it does more than add special tokens around and between the texts.
    """
    forms = set()
    for tokens in tokenizer.golden_pairs:
        form: list[FormPart] = []
        for side, i, type_ in tokens:
            part = FormPart(SPECIAL, i, type_) if side is None else FormPart(side, 0, type_)
            if side is None or form[-1:] != [part]:
                form.append(part)
        forms.add(tuple(form))
    first = next(iter(forms))
    if len(forms) > 1 or [part.side for part in first if part.side != SPECIAL] != [0, 1]:
        raise DataError(
            "the tokenizer's post-processor does more than add special tokens around and between "
            "the texts of a pair: replace it with a template of the form "
            "`[CLS] $A [SEP] $B:1 [SEP]:1`"
        )
    return first


def ids_between(form: Form) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before the first text, between the two, and after the last."""
    texts = [i for i, part in enumerate(form) if part.side != SPECIAL]
    parts = form[: texts[0]], form[texts[0] + 1 : texts[-1]], form[texts[-1] + 1 :]
    before, between, after = ([part.id for part in some] for some in parts)
    return before, between, after


def longest_first(length_ExT: np.ndarray, room: int) -> np.ndarray:
    """Truncated lengths: tokens are removed one by one from the longer of two texts.

    `tokenizers` truncates in the same way with `longest_first`.

    Args:
      length_ExT: int64, tokens of one text or two.
      room: the most tokens of both together.
    """
    if length_ExT.shape[1] == 1:
        return np.minimum(length_ExT, room)
    shorter_E, longer_E = length_ExT.min(axis=1), length_ExT.max(axis=1)
    cut_E = np.maximum(shorter_E, room - shorter_E)  # the longer one, while the other stays whole
    fits_E = shorter_E + longer_E <= room
    both_E = shorter_E + cut_E > room
    shorter_E = np.where(~fits_E & both_E, room // 2, shorter_E)
    longer_E = np.where(fits_E, longer_E, np.where(both_E, room - room // 2, cut_E))
    is_first_longer = length_ExT[:, 0] > length_ExT[:, 1]
    first_E = np.where(is_first_longer, longer_E, shorter_E)
    second_E = np.where(is_first_longer, shorter_E, longer_E)
    return np.stack((first_E, second_E), axis=1)


def fill_form(
    form: Form,
    texts: Sequence[Ragged],
    document_E: np.ndarray,
    *,
    head_ExT: np.ndarray,
    kept_ExT: np.ndarray,
) -> tuple[Ragged, Ragged]:
    """Fills a form with truncated texts; the first and the last tokens of a text are kept.

    Args:
      form: a form with T texts.
      texts: T columns of ids, each with all documents.
      document_E: the document of each example.
      head_ExT: int64, tokens that are kept from the start of a text.
      kept_ExT: int64, tokens that are kept altogether.

    Returns:
      The ids of the examples, and the token type of each id, uint8.
    """
    specials = [part.id for part in form if part.side == SPECIAL]
    pool = np.concatenate([ids for ids, _ in texts] + [np.array(specials, texts[0][0].dtype)])
    base = np.cumsum([0] + [len(ids) for ids, _ in texts])
    special_at = int(base[-1])
    starts, lengths, types = [], [], []
    ones_E = np.ones(len(document_E), np.int64)
    for part in form:
        if part.side == SPECIAL:
            starts.append(special_at * ones_E)
            lengths.append(ones_E)
            types.append(part.type)
            special_at += 1
        else:
            offsets = texts[part.side][1] + base[part.side]
            head_E, tail_E = head_ExT[:, part.side], (kept_ExT - head_ExT)[:, part.side]
            starts += [offsets[:-1][document_E], offsets[1:][document_E] - tail_E]
            lengths += [head_E, tail_E]
            types += [part.type] * 2
    lengths_ExP = np.stack(lengths, axis=1)
    ids = join_slices(pool, np.stack(starts, axis=1), lengths_ExP)
    types_ExP = np.tile(np.array(types, np.uint8), len(document_E))
    return ids, Ragged(np.repeat(types_ExP, lengths_ExP.ravel()), ids.offsets)
