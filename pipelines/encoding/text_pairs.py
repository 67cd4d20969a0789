"""One text or two, cut, with special tokens around them as a tokenizer's post-processor says. Pure.

Legend: E examples, T texts of an example, P parts of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipelines.rows.ragged import Ragged, join_slices
from schemas.errors import DataError

if TYPE_CHECKING:
    import tokenizers

SPECIAL, FIRST, SECOND = -1, 0, 1


@dataclass(frozen=True)
class FormPart:
    """A part of what is made of texts.

    Attributes:
      side: SPECIAL for a special token, or FIRST or SECOND for a whole text.
      id: of the special token; 0 for a text.
      type: the token type of all its tokens.
    """

    side: int
    id: int
    type: int


Form = tuple[FormPart, ...]


def single_form(prefix_ids: Sequence[int], suffix_ids: Sequence[int]) -> Form:
    """`<s> $A </s>`, with the one token type that there is."""
    return (
        *(FormPart(SPECIAL, i, 0) for i in prefix_ids),
        FormPart(FIRST, 0, 0),
        *(FormPart(SPECIAL, i, 0) for i in suffix_ids),
    )


def find_pair_form(tokenizer: "tokenizers.Tokenizer", texts: Sequence[str], place: str) -> Form:
    """What its post-processor makes of two texts: BERT's `[CLS] $A [SEP] $B:1 [SEP]:1`.

    Args:
      tokenizer: without truncation and padding.
      texts: some to try it on, none of which is empty.
      place: what to call it in errors.

    Raises:
      DataError: it does more than put special tokens around and between the two.
    """
    forms = set()
    for first, second in zip(texts, (*texts[1:], texts[0]), strict=True):
        encoding = tokenizer.encode(first, second)
        form: list[FormPart] = []
        for side, i, type_ in zip(
            encoding.sequence_ids, encoding.ids, encoding.type_ids, strict=True
        ):
            is_special = side is None
            part = FormPart(SPECIAL if is_special else side, i if is_special else 0, type_)
            if is_special or form[-1:] != [part]:
                form.append(part)
        forms.add(tuple(form))
    found = next(iter(forms))
    if len(forms) > 1 or [part.side for part in found if part.side >= 0] != [FIRST, SECOND]:
        raise DataError(
            f"{place}: its post-processor does more with two texts than put special tokens around "
            "and between them: give it a template of the form `[CLS] $A [SEP] $B:1 [SEP]:1`"
        )
    return found


def ids_between(form: Form) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before the first text, between the two, and after the last."""
    sides: tuple[list[int], list[int], list[int]] = ([], [], [])
    texts = 0
    last = sum(part.side >= 0 for part in form)
    for part in form:
        if part.side >= 0:
            texts += 1
        else:
            sides[2 if texts == last else texts].append(part.id)
    return sides


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
    specials = [part.id for part in form if part.side < 0]
    pool = np.concatenate([ids for ids, _ in texts] + [np.array(specials, texts[0][0].dtype)])
    base = np.cumsum([0] + [len(ids) for ids, _ in texts])
    special_at = int(base[-1])
    starts, lengths, types = [], [], []
    ones_E = np.ones(len(document_E), np.int64)
    for part in form:
        if part.side < 0:
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
