"""Patterns of a tokenizer.json, tried out where they may run away: in a process that can be ended.

The regular expressions of `tokenizers` know no limit of time: `(a+)+$` takes twice as long for each
further `a`. Published patterns cannot do that, which is plain from how they are written; what is
not plain is run here, which takes 0.1 s. Python 3.8 syntax.
"""

import json
import re
import subprocess
import sys
from typing import Iterable, List, Optional

from schemas.errors import DataError

_TRIAL_SECONDS = 10
_TRIAL_BYTES = 4 << 30  # of address space
_MOST_REPEATS = 3  # one after another; each makes a power of the text's length of the time
_RUNS = (28, 2000)  # how long the hard texts are: for doubling, and for powers
_ESCAPE = re.compile(r"\\[pP]\{\^?\w+\}|\\.", re.DOTALL)
_CLASS = re.compile(r"\[[^\[\]]+\]")
_OPEN_REPEAT = re.compile(r"[*+]|,\}")
_BACK_REFERENCE = re.compile(r"\\[1-9gkKRX]")
_DOUBTFUL = re.compile(
    r"\)[*+{]"  # a repeated group, which may hold repeats and choices
    r"|[*+?}][*+{]"  # a repeated repeat
    r"|\(\?(?![imsa-]*[:=!>)]|<[=!])"  # a group that is not one of the usual kinds
    r"|\{\d*,?\d{4,}|\["  # a large count; a class that is not understood
)
# Begins with a limit on memory, for a pattern may be written out when it is compiled.
_TRIAL = f"""
import sys
sys.path.pop(0)  # the folder that the user happens to be in
import json, resource
from tokenizers import Regex, pre_tokenizers
resource.setrlimit(resource.RLIMIT_AS, ({_TRIAL_BYTES}, {_TRIAL_BYTES}))
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


def refuse_runaway_patterns(patterns: Iterable[str], place: str) -> None:
    """Tries regular expressions that may run away on texts that are hard for them.

    Raises:
      DataError: one fails, or takes too long or too much memory.
    """
    doubtful = [pattern for pattern in patterns if may_run_away(pattern)]
    failure = _failure_of(doubtful) if doubtful else None
    if failure is not None:
        raise DataError(
            f"{place}: of its patterns {failure}; write them without a repeat within a repeat, or "
            "use another tokenizer"
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


def _failure_of(patterns: List[str]) -> Optional[str]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL],
            input=json.dumps(patterns).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        what = f"takes more than {_TRIAL_SECONDS} s for texts of {max(_RUNS):,} characters"
        return f"one, {ascii(patterns):.200}, {what}"
    if done.returncode == 0:
        return None
    return done.stdout.decode().strip() or f"one, {ascii(patterns):.200}, ends its process"
