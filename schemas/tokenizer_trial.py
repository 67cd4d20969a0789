"""What of a tokenizer.json is not plainly harmless is tried out, in a process that can be ended.

The regular expressions of `tokenizers` know no limit of time: `(a+)+$` takes twice as long for each
further `a`. Published patterns cannot do that, which is plain from how they are written; what is
not plain is tried here, which takes 0.1 s. Python 3.8 syntax.
"""

import json
import os
import re
import subprocess
import sys
from typing import Any, Dict, List, Optional

from schemas.errors import DataError
from schemas.tokenizer_bounds import added_text_may_grow, patterns_of

_TRIAL_SECONDS = 10
_LOADING_SECONDS = 60
_TRIAL_BYTES = 4 << 30  # of address space
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
# Both begin with a limit on memory, which a pattern that is written out can take as well.
_BEGINNING = f"""
import sys
sys.path.pop(0)  # the folder that the user happens to be in
import json, resource
from tokenizers import Regex, Tokenizer, pre_tokenizers
if resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY:
    resource.setrlimit(resource.RLIMIT_AS, ({_TRIAL_BYTES}, {_TRIAL_BYTES}))
"""
_TRY_PATTERNS = f"""{_BEGINNING}
for pattern in json.load(sys.stdin.buffer):
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
        print(ascii(pattern)[:200], "fails:", ascii(str(error).split("\\n")[0])[1:-1][:200])
        sys.exit(1)
"""
_TRY_LOADING = f"{_BEGINNING}Tokenizer.from_buffer(sys.stdin.buffer.read())"


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
            f"{_LOADING_SECONDS} s and {_TRIAL_BYTES >> 30} GiB; use another tokenizer"
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


def _failure_of(script: str, data: bytes, seconds: int) -> Optional[str]:
    """Runs a script on some bytes: what it says if it fails; None if it does not."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        return f"one takes more than {seconds} s"
    if done.returncode == 0:
        return None
    return done.stdout.decode().strip() or "one ends the process that reads it"
