"""Templates with named fields, such as `Question: {question} answer: {answer}`. Pure.

Pipelines fill them with documents, trainers with a user's question. Python 3.8 syntax.
"""

import string
from dataclasses import dataclass
from typing import Tuple

from schemas.errors import UsageError


@dataclass(frozen=True)
class Slot:
    """A field and the text before it.

    Attributes:
      literal: text since the previous slot, without the white space at its end.
      space: that white space. It is encoded with the field: in byte-level BPE " Paris" is a token,
        so encoding part by part gives the same ids as encoding the whole text.
      field: its name.
    """

    literal: str
    space: str
    field: str


def parse_template(template: str, fields: Tuple[str, ...], flag: str) -> Tuple[Slot, ...]:
    """`Question: {question} answer: {answer}` -> ("Question:", " ", question), (" answer:", ...).

    Args:
      template: with `{{` for a brace.
      fields: all that the template must name, each once, the last one at its end.
      flag: named in errors.

    Raises:
      UsageError: the template is malformed, or a field is missing, repeated or unknown.
    """
    where = f"{flag}={template!r}"
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"{where}: {error}; write {{{{ for a literal brace") from error
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
            raise UsageError(f"{where}: {{{name}}} occurs {found.count(name)} times, not once")
    if found[-1] != fields[-1] or literal:
        raise UsageError(f"{where}: it must end with {{{fields[-1]}}}")
    return tuple(slots)
