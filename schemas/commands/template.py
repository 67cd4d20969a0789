"""A template with places for fields, as `Question: {question} answer: {answer}`. Pure.

Pipelines fill it with documents, trainers with a question that is asked. Python 3.8 syntax.
"""

import string
from dataclasses import dataclass
from typing import Tuple

from schemas.errors import UsageError


@dataclass(frozen=True)
class Slot:
    """A place for a field, and what stands before it.

    Attributes:
      literal: text since the slot before, without the white space at its end.
      space: that white space. It goes with the field, as byte-level BPE has it: " Paris" is a
        token, so that encoding part by part gives what encoding the whole text gives.
      field: its name.
    """

    literal: str
    space: str
    field: str


def parse_template(template: str, fields: Tuple[str, ...], flag: str) -> Tuple[Slot, ...]:
    """`Question: {question} answer: {answer}` -> ("Question:", " ", question), (" answer:", ...).

    Args:
      template: `{{` stands for a brace.
      fields: those that must be there, each once, the last at the end.
      flag: to name in errors.

    Raises:
      UsageError: it is not so.
    """
    where = f"{flag}={template!r}"
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"{where}: {error}; write {{{{ for a brace that is text") from error
    slots = []
    literal = ""
    for text, field, form, conversion in parsed:
        literal += text
        if field is None:  # an escaped brace, or the end
            continue
        if field not in fields or form or conversion:
            known = ", ".join(f"{{{name}}}" for name in fields)
            raise UsageError(f"{where}: there is no {{{field}}}, only {known}")
        bare = literal.rstrip()
        slots.append(Slot(bare, literal[len(bare) :], field))
        literal = ""
    found = [slot.field for slot in slots]
    for name in fields:
        if found.count(name) != 1:
            raise UsageError(f"{where}: {{{name}}} is there {found.count(name)} times, not once")
    if found[-1] != fields[-1] or literal:
        raise UsageError(f"{where}: it must end with {{{fields[-1]}}}")
    return tuple(slots)
