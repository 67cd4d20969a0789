"""Classification of texts, or of pairs of texts: a document a row. Pure.

Texts are cut once, here, and what is cut is counted: tokens + specials - truncated = tokens in
rows. Legend: D documents, E examples (documents that have tokens), T texts of an example, P
parts of one: texts and special tokens.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from pipelines.host.arrow import pc
from pipelines.readers.documents import Documents, Role
from pipelines.rows.evaluation import evaluation_lines
from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import Ragged, join_slices
from pipelines.tasks.task import (
    Columns,
    Examples,
    RowProblem,
    Segments,
    Surroundings,
    Task,
    need_room,
    problems_where,
)
from schemas.errors import DataError, UsageError
from schemas.features import token_dtype
from schemas.metadata import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer

SPECIAL = -1  # the side of a part that is no text
_SHOWN = 20  # classes that a refusal names
_BEGINNING = 40  # characters of a text that has no id to be named by


class FormPart(NamedTuple):
    """A part of what a tokenizer's post-processor makes of one text or two.

    Attributes:
      side: 0 or 1 for a whole text, SPECIAL for a special token.
      id: of the special token; 0 for a text.
      type: the token type of all its tokens.
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
    """The field with a second text, to classify pairs."""
    label_field: str = "label"
    """The field with the label; of text files the name of the folder is the label."""
    id_field: str = "id"
    """The field with an id, if documents have one: it goes into evaluation.jsonl."""
    classes: str = ""
    """The labels in the order of their numbers: neg,pos or a JSON list. Without, they are found."""
    truncation: Literal["head", "tail", "head_tail"] = "head"
    """What is kept of a text that is too long. head_tail: a quarter of its start, the rest of its
    end (Sun et al., 2019). Of a pair the longer text is cut first, until both are as long."""

    def __post_init__(self) -> None:
        """Refuses classes that cannot be told apart."""
        if self.classes:
            self.class_names()

    def class_names(self) -> tuple[str, ...]:
        """--classes, parsed; they must be known by now.

        Raises:
          UsageError: they are not two or more different names.
        """
        names: Any = self.classes.split(",")
        if self.classes.startswith("["):
            try:
                names = json.loads(self.classes)
            except ValueError as error:
                raise UsageError(f"--classes={self.classes}: not a JSON list ({error})") from error
        if not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"--classes={self.classes}: names like neg,pos, none of them empty")
        if len(set(names)) < len(names):
            raise UsageError(f"--classes={self.classes}: a name is there twice")
        if len(names) < 2:
            raise UsageError(f"--classes={self.classes}: one class is nothing to tell apart")
        return tuple(names)

    def complete(self, values_of: Callable[[Role], tuple[str, ...]]) -> Self:
        """Finds the classes that were not given."""
        if self.classes:
            return self
        [role] = (role for role in self.roles() if role.values.is_folder)
        names = values_of(role)
        if len(names) < 2:
            raise UsageError(
                f"the only label in the inputs is {next(iter(names))!r}: name the field that holds "
                "the label with --label_field, or give all classes with --classes=a,b"
            )
        return replace(self, classes=json.dumps(names, ensure_ascii=False))

    def roles(self) -> tuple[Role, ...]:
        """A text, perhaps another, a label and perhaps an id."""
        pair = (Role("text_pair", "string", self.text_pair_field),) if self.text_pair_field else ()
        return (
            Role("text", "string", self.text_field),
            *pair,
            Role("label", "label", self.label_field),
            Role("id", "id", self.id_field, optional=True),
        )

    def routed_by(self) -> tuple[str, ...]:
        """The texts: the same text with another label is in the same split."""
        return tuple(role.name for role in self.roles() if role.values.is_text)

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Rows need room for text, and pairs something that tells the texts apart."""
        form = self._form(tokenizer)
        added = sum(part.side == SPECIAL for part in form)
        texts = len(self.routed_by())
        need_room(max_length, added, texts)
        prefix, middle, suffix = ids_between(form)
        if texts == 2 and not middle and len({part.type for part in form}) == 1:
            raise UsageError(
                "the tokenizer puts nothing between two texts, so that no model could tell them "
                "apart: give one whose post-processor has a template for pairs, such as "
                "`[CLS] $A [SEP] $B:1 [SEP]:1`"
            )
        parameters = {
            "classes": list(self.class_names()),
            "truncation": self.truncation,
            "prefix_ids": prefix,
            **({"middle_ids": middle} if self.text_pair_field else {}),
            "suffix_ids": suffix,
        }
        return super().contract(tokenizer, max_length) | {"parameters": parameters}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """A row each: `<s> text </s>`, `<s> text </s> </s> text_pair </s>`."""
        encoded = [tokenizer.encode(documents.columns[name]) for name in self.routed_by()]
        length_DxT = np.stack([ids.lengths for ids, _ in encoded], axis=1)
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
            [ids.astype(dtype) for ids, _ in encoded],
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
        guarded = max(number for _, number in encoded)
        return Examples(document_E, ragged, scalars, rejects, guarded)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Each example whole, in a row of its own."""
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
        """int64 [D], -1 for labels that are no class; and these, refused."""
        names = self.class_names()
        labels = documents.columns["label"]
        found = pc.index_in(labels, value_set=pa.array(names, labels.type))
        label_D = found.fill_null(-1).to_numpy().astype(np.int64)
        shown = ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)
        rejects = {}
        for document in np.flatnonzero(label_D < 0).tolist():
            name = documents.columns["id"][document].as_py()
            which = f"id {name}" if name else repr(documents.text[document].as_py()[:_BEGINNING])
            detail = f"label {labels[document].as_py()!r} is none of the classes {shown}"
            rejects[document] = "unknown_label", f"{which}: {detail}"
        return label_D, rejects

    def _head(self, length_ExT: np.ndarray, kept_ExT: np.ndarray) -> np.ndarray:
        """How many of the tokens that are kept are of the text's start."""
        if self.truncation == "head":
            return kept_ExT
        if self.truncation == "tail":
            return np.zeros_like(kept_ExT)
        # 128 of 510, as published.
        return np.where(kept_ExT < length_ExT, (kept_ExT + 2) // 4, kept_ExT)

    def _evaluation(
        self,
        documents: Documents,
        document_E: np.ndarray,
        label_D: np.ndarray,
        is_trained_D: np.ndarray,
    ) -> Ragged:
        """Lines of evaluation.jsonl, {"id": "17", "label": "pos"}; empty where trained on."""
        is_evaluated_E = ~is_trained_D[document_E]
        document = document_E[is_evaluated_E]
        ids = documents.columns["id"].take(pa.array(document))
        labels = pa.array(self.class_names(), pa.large_string()).take(pa.array(label_D[document]))
        objects = pa.StructArray.from_arrays([ids, labels], ["id", "label"])
        return evaluation_lines(objects, is_evaluated_E)

    @classmethod
    def surroundings(cls, schema: Schema, tokenizer: "LoadedTokenizer") -> Surroundings:
        """Of a pair: what is before the first text, and after the second."""
        if "middle_ids" not in schema.parameters:
            return super().surroundings(schema, tokenizer)
        before, _, after = ids_between(pair_form(tokenizer))
        return tuple(before), tuple(after)

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Labels are classes, and padding has the token type 0."""
        label_B, classes = columns["label"], schema.parameters["classes"]
        yield from problems_where(
            (label_B >= len(classes))[:, None],
            lambda row, _: (
                f"label is {label_B[row]}, and there are {len(classes)} classes, from 0 on"
            ),
        )
        if "token_type_ids" in columns:
            types = columns["token_type_ids"]
            yield from problems_where(
                (columns["segment_ids"] == 0) & (types != 0),
                lambda row, i: f"token_type_ids[{i}] is {types[row, i]} in padding, not 0",
            )


def single_form(prefix_ids: Sequence[int], suffix_ids: Sequence[int]) -> Form:
    """`<s> $A </s>`, with one token type."""
    before, after = ([FormPart(SPECIAL, i, 0) for i in ids] for ids in (prefix_ids, suffix_ids))
    return (*before, FormPart(0, 0, 0), *after)


def pair_form(tokenizer: "LoadedTokenizer") -> Form:
    """What the tokenizer's post-processor makes of two texts: BERT's `[CLS] $A [SEP] $B:1 [SEP]:1`.

    Raises:
      DataError: it does more than put special tokens around and between the two.
    """
    forms = set()
    for tokens in tokenizer.golden_pairs:
        form: list[FormPart] = []
        for side, i, type_ in tokens:
            part = FormPart(SPECIAL, i, type_) if side is None else FormPart(side, 0, type_)
            if side is None or form[-1:] != [part]:
                form.append(part)
        forms.add(tuple(form))
    found = next(iter(forms))
    if len(forms) > 1 or [part.side for part in found if part.side != SPECIAL] != [0, 1]:
        raise DataError(
            "the tokenizer's post-processor does more with two texts than put special tokens "
            "around and between them: give it a template of the form "
            "`[CLS] $A [SEP] $B:1 [SEP]:1`"
        )
    return found


def ids_between(form: Form) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before the first text, between the two, and after the last."""
    texts = [place for place, part in enumerate(form) if part.side != SPECIAL]
    parts = form[: texts[0]], form[texts[0] + 1 : texts[-1]], form[texts[-1] + 1 :]
    before, between, after = ([part.id for part in some] for some in parts)
    return before, between, after


def longest_first(length_ExT: np.ndarray, room: int) -> np.ndarray:
    """Lengths that fit: the longer of two texts is cut until both are as long, then both are.

    As `tokenizers` cuts with `longest_first`, and as if each token went one by one.

    Args:
      length_ExT: int64, tokens of one text or two.
      room: for them together.
    """
    if length_ExT.shape[1] == 1:
        return np.minimum(length_ExT, room)
    shorter_E, longer_E = length_ExT.min(axis=1), length_ExT.max(axis=1)
    cut_E = np.maximum(shorter_E, room - shorter_E)  # of the longer, as long as the other is whole
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
    """Puts texts into a form; what is kept of a text is its first tokens and its last.

    Args:
      form: with as many texts as there are.
      texts: ids of the first and of the second text, of all documents.
      document_E: which documents.
      head_ExT: int64, how many tokens are kept from the text's start.
      kept_ExT: int64, and how many altogether.

    Returns:
      Ids of the examples, and uint8, the token type of each.
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
