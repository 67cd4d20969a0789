"""What of a tokenizer.json is not plainly harmless is tried out, in a process that can be ended.

The regular expressions of `tokenizers` know no limit of time: `(a+)+$` takes twice as long for each
further `a`. Published patterns cannot do that, which is plain from how they are written; what is
not plain is tried here, which takes 0.1 s. Python 3.8 syntax.
"""

import json
import re
from typing import Any, Dict, List, Optional

from schemas.errors import DataError
from schemas.untrusted.limited_process import BYTES, LimitedProcess, LimitExceeded
from schemas.untrusted.tokenizer_bounds import added_text_may_grow, patterns_of

_TRIAL_SECONDS = 10
_LOADING_SECONDS = 60
_MOST_REPEATS = 3  # one after another; each makes a power of the text's length of the time
_RUNS = (28, 2000)  # how long the hard texts are: for doubling, and for powers
_ESCAPE = re.compile(r"\\[pP]\{\^?\w+\}|\\.", re.DOTALL)
_CLASS = re.compile(r"\[[^\[\]]+\]")
_BACK_REFERENCE = re.compile(r"\\[1-9gkKRX]")
_DOUBTFUL = re.compile(
    r"\)[*+{]"  # a repeated group, which may hold repeats and choices
    r"|[*+?}][*+{]"  # a repeated repeat
    r"|\(\?(?![imsa-]*[:=!>)]|<[=!])"  # a group that is not one of the usual kinds
    r"|\{\d*,?\d{4,}|\["  # a large count; a class that is not understood
)
_TRY_PATTERNS = f"""
import json
from tokenizers import Regex, pre_tokenizers
def answer(data):
    for pattern in json.loads(data):
        characters = sorted({{*pattern[:200], *"a 1é中!\\n\\t"}})
        everything = "".join(characters)
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
            for character in characters:
                for run in {_RUNS}:
                    for end in ("", "\\0", "~" + everything):
                        split.pre_tokenize_str(character * run + end)
            split.pre_tokenize_str(everything * 40)
        except BaseException as error:  # a panic in Rust is no Exception
            first = ascii(str(error).split("\\n")[0])[1:-1][:200]
            return (ascii(pattern)[:200] + " fails: " + first).encode()
    return b""
"""
_TRY_LOADING = """
from tokenizers import Tokenizer
def answer(data):
    Tokenizer.from_buffer(data)
    return b""
"""


def try_tokenizer(content: bytes, config: Dict[str, Any], place: str) -> None:
    """Tries what of a tokenizer.json may take time or memory without end.

    Args:
      content: of the file.
      config: the same, parsed and within bounds.
      place: names it in errors.

    Raises:
      DataError: a pattern fails, or something takes too long or too much memory.
    """
    if failure := failure_of_patterns(patterns_of(config)):
        raise DataError(f"{place}: of its patterns {failure}, or use another tokenizer")
    if added_text_may_grow(config) and _failure_of(_TRY_LOADING, content, _LOADING_SECONDS):
        raise DataError(
            f"{place}: its added tokens, as its normalizer writes them, cannot be loaded within "
            f"{_LOADING_SECONDS} s and {BYTES >> 30} GiB; use another tokenizer"
        )


def failure_of_patterns(patterns: List[str]) -> Optional[str]:
    """Tries regular expressions that may run away on hard texts: what fails, and the remedy."""
    doubtful = [pattern for pattern in patterns if may_run_away(pattern)]
    if not doubtful:
        return None
    failure = _failure_of(_TRY_PATTERNS, json.dumps(doubtful).encode(), _TRIAL_SECONDS)
    return failure and (
        f"{failure}, for texts of {max(_RUNS):,} characters; write them without a repeat within a "
        "repeat"
    )


def may_run_away(pattern: str) -> bool:
    """Whether it is not plain that a regular expression takes little time for any text.

    Plain are those without repeated groups, references back and long rows of open repeats.
    """
    if _BACK_REFERENCE.search(pattern):
        return True
    bare, classes = _ESCAPE.sub("E", pattern), 1
    while classes:  # from the innermost, for a class may hold others
        bare, classes = _CLASS.subn("C", bare)
    rows = (
        choice.count("*") + choice.count("+") + choice.count(",}") for choice in bare.split("|")
    )
    return _DOUBTFUL.search(bare) is not None or max(rows) > _MOST_REPEATS


def _failure_of(program: str, data: bytes, seconds: int) -> Optional[str]:
    """Runs a program on some bytes: what it says if it fails; None if it does not."""
    child = LimitedProcess(program, seconds=seconds)
    try:
        return child.ask(data).decode() or None
    except LimitExceeded as error:
        return f"one {error}"
    finally:
        child.close()
