"""The labels or names of classes, as a value of an option."""

import json
from collections.abc import Iterable
from typing import Self

from textmill.schemas.commands.values import join_list, split_list
from textmill.schemas.errors import FieldError


class ClassNames(tuple[str, ...]):
    """Two or more different names, in the order of their numbers; or none.

    As text, commas separate them: neg,pos. Names that hold commas are in double quotes, or all are
    a JSON list: ["no, not", "yes"].
    """

    is_json = False

    def __new__(cls, names: Iterable[str] = (), *, is_json: bool = False) -> Self:
        """Makes names; `is_json` for those whose text is a JSON list."""
        self = super().__new__(cls, names)
        self.is_json = is_json
        if not all(isinstance(name, str) and name for name in self):
            raise FieldError("", self, "must be names such as neg,pos, none of them empty")
        if len(set(self)) < len(self):
            raise FieldError("", self, "a name occurs twice")
        if len(self) == 1:
            raise FieldError("", self, "at least two classes are needed")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `neg,pos` or a JSON list; no names of "".

        Raises:
          FieldError: they are not two or more different names.
        """
        if not text.startswith("["):
            return cls(split_list(text))
        try:
            names = json.loads(text)
            json.dumps(names, ensure_ascii=False).encode()  # no lone surrogates
        except ValueError as error:
            raise FieldError("", text, f"not a JSON list ({error})") from error
        return cls(names, is_json=True)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        if self.is_json or self and str(self[0]).startswith("["):
            return json.dumps(self, ensure_ascii=False)
        return join_list(self)
