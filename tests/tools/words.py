"""Finds retired words and telegraphic sentences in pages, docstrings, comments, messages and help.

    python -m tests.tools.words                        every finding, with what to write instead
    python -m tests.tools.words docs/stores.md pipelines/rows

Code and output (fenced blocks and text in backticks) are not checked. The right column of `RETIRED`
is the field's word; where the retired word is the right one after all, rewrite the sentence.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/*.md", "examples/**/*.md", ".github/**/*.md")
SOURCES = ("pipelines/**/*.py", "schemas/**/*.py", "trainers/**/*.py", "examples/**/*.py")

_FILES = (
    r"(?:files?|json|manifests?|schemas?|datasets?|sets?|cards?|pages?|tables?|texts?|logs?|lines?"
    r"|plans?|rows?|shards?|corpus|corpora|flags?|headers?|names?|records?|clouds?)"
)
_KIND = (
    "format|dataset|split|model|seed|stream|form|type|kind|shape|task|way|width|script|hash|sha256"
)
# Pattern, and what to write instead.
RETIRED = {
    r"sidecars?": "metadata file",
    r"shard sets?": "dataset",
    r"(?<!data )contracts?": "schema",
    r"strangers?": "untrusted source",
    r"attack(?:s|ed|ing)?": "fuzz, stress or fault-injection test",
    r"peers?": "baseline, other tool",
    r"houses?|drawers?|floors": "layer, package",
    r"(?<!expression )(?<!regex )(?<!compute )engines?": "runner (Beam), backend (tokenizers)",
    r"faces": "emoticons",
    r"tombstones?": "probe character, deletion mark",
    r"exchanges?": "shuffle",
    r"density": "packing efficiency, padding",
    r"(?:the|of|their|those|these|which|best|all|as) measures": "metrics",
    r"pictures": "plots, images",
    r"whom": "name who acts",
    r"who reads": "the worker (reader, user) that reads",
    r"go(?:es|ing)? on with|went on with": "resumes, continues",
    r"anew|afresh": "again, starts over",
    r"whole or not at all": "atomic",
    r"looked at|looks at|look at": "checked, read",
    r"held against|holds? (?:it|them) against": "compared with",
    r"(?:can|could|to) be had|at hand": "available",
    r"lies?(?= (?:in|at|on|beside|under|there|here|where|outside|next))|lay (?:in|on)": "is in",
    r"of no tokens": "empty",
    r"asked for|asks? for": "requested, looked up",
    r"(?:is|are|was|were|be|been|being|gets) (?:said|told)": "report, log, warn, print",
    r"(?:say|tell)s? so": "report, log, warn, print",
    rf"{_FILES} (?:say|tell|know|want|ask|speak|promise|command)s?": "a file does not act",
    r"(?:it|they) (?:say|tell|know|want)s?": "a file does not act",
    r"nobody|somebody": "name who acts",
    r"as one likes|for as long as": "with a configurable duration",
    r"(?:at|in|of|takes?|took) (?:its|their|the) places? in (?:a|the|its) rows?": "position",
    r"(?:the|every|each|all|of|in) places": "positions",
    r"left out|leaves? out|leaving out": "filtered, deduplicated, rejected, skipped",
    r"(?:(?<!object )(?:the|a|any|every|each|another) )stores?(?= (?:is|are|has|of|that|in|or))"
    r"|(?<=(?:in|to|of) )a store|(?<=(?:in|to|of) )stores": "object store, bucket",
    r"for (?:good|nothing)": "permanently; without cost",
    r"in words": "with a clear error",
    r"by itself alone|of itself": "say what is meant",
    r"runs? away": "backtracks catastrophically; grows without bound",
    r"slopes?": "gradients",
    r"between white space": "separated by white space",
    r"most tokens to|fewest occurrences": "maximum number, minimum count",
    r"(?:flags?|options?|images?|parts|pipelines?) of beam": "Beam's flags, a Beam pipeline",
    r"(?:is|are) no settings?(?: of)?": "does not depend on",
    r"by the (?:ten thousand|thousand|million)": "tens of thousands at a time",
    r"flatters?": "favours",
    r"belongs? to the kernel": "is released by the kernel",
    r"holds? the interpreter(?!'s)": "holds the GIL",
    r"(?:counted|optimized|orthogonalized|listed) apart": "separately",
    r"counts? [\w ]{1,30} nowhere": "does not count",
    r"always in one split": "in the same split",
    rf"(?:has|have|had|in|of|on|sees) another (?:number|size|order|version|{_KIND})": "a different",
    r"(?:it|that|which|file|path|value) (?:is|are) no (?!longer|more|less|such|way)": "is not a",
    r"raises as": "raises like",
    r"mill(?:ed|s)?|sub-blocks?|informed|unasked": "retired",
}
# How a sentence must not begin, and why.
OPENINGS = {
    r"Of (?!course)": "subject first",
    r"(?:Who|Whom|Whoever|Whose) ": "name who acts",
    r"What [^?]*$": "subject first",
    r"That (?:a|an|the|all|no|one|it|they|which) ": "subject first",
    r"(?:Nothing|Nobody|No one|Neither) ": "positive before negative",
    r"(?:So|As) (?:many|much|often|long) ": "name the quantity",
    r"Such (?:a|an|as|that|are|is) ": "name the thing",
    r"One (?:that|which|who|of them|whose) ": "name the thing",
    r"Where (?:there|nothing|it|one|no|both|this) [^?]*$": "if, when",
    r"In words": "name the thing",
    r"By (?:it|them|which|whom) ": "subject first",
    r"[a-z_]+: (?:of|that|who|whom|so many) ": "subject first",
}
_RETIRED = {re.compile(rf"\b(?:{word})\b", re.I): better for word, better in RETIRED.items()}
_OPENINGS = {re.compile(opening): better for opening, better in OPENINGS.items()}
_SENTENCE = re.compile(
    r"(?<=[.!?;])\s+(?=[A-Z\"(`])|\s*\|\s*|\n\s*\n|\n\s*(?:[-*]|\d+\.|#+)\s+|: (?=[A-Z])"
)
_CODE = re.compile(r"`[^`\n]*(?:\n[^`\n]+)?`")


class Sentence(NamedTuple):
    """A sentence and where it stands."""

    path: str
    line: int
    text: str


class Finding(NamedTuple):
    """A sentence, the words in it that are retired, and what to write instead."""

    sentence: Sentence
    words: str
    better: str

    def __str__(self) -> str:
        where = f"{self.sentence.path}:{self.sentence.line}"
        return f"{where}: {self.words!r} ({self.better}): {self.sentence.text[:160]}"


def find_retired(sentence: Sentence) -> Iterator[Finding]:
    """Words of a sentence that the glossary has retired."""
    prose = _CODE.sub("CODE", sentence.text)
    for pattern, better in _RETIRED.items():
        for match in pattern.finditer(prose):
            yield Finding(sentence, match.group(), better)
    for pattern, better in _OPENINGS.items():
        if match := pattern.match(prose):
            yield Finding(sentence, " ".join(match.group().split()[:2]), better)


def split_sentences(path: str, line: int, text: str) -> Iterator[Sentence]:
    """Sentences, table cells and bullets of a text that begins at a line."""
    position = 0
    for match in [*_SENTENCE.finditer(text), None]:
        part = text[position : match.start() if match else None]
        if len(part.split()) > 1:
            before = text[: position + len(part) - len(part.lstrip())].count("\n")
            yield Sentence(path, line + before, " ".join(part.split()))
        position = match.end() if match else len(text)


def read_page(path: str, text: str) -> Iterator[Sentence]:
    """The prose of a Markdown page: without fenced blocks and the addresses of links."""
    fenced = re.compile(r"^```.*?^```$", re.M | re.S)
    text = fenced.sub(lambda found: "\n" * found.group().count("\n"), text)
    text = re.sub(r"\]\([^)]*\)|<[^>]*>|\[|\*\*", "", text)
    yield from split_sentences(path, 1, re.sub(r"^(?:#+|[-*]|\d+\.|>)\s+", "", text, flags=re.M))


def read_source(path: str, text: str) -> Iterator[Sentence]:
    """Docstrings, comments and messages of a program: strings of three words and more."""
    comments: dict[int, str] = {}  # by the line of the first of consecutive ones
    first = last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, words = token.start[0], token.string.lstrip("#: ")
            first = first if line == last + 1 else line
            comments[first] = f"{comments[first]}\n{words}" if first in comments else words
            last = line
    for line, words in comments.items():
        yield from split_sentences(path, line, words)
    nodes = [*ast.walk(ast.parse(text))]
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else "`x`" for part in node.values
            )
            words = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            words = node.value
        else:
            continue
        if isinstance(words, str) and words.count(" ") > 1:
            yield from split_sentences(path, node.lineno, words)


def sentences(names: list[str]) -> Iterator[Sentence]:
    """Every sentence of the pages and sources under some paths; without paths, of all of them."""
    patterns = [*PAGES, *SOURCES]
    if names:
        named = [ROOT / name for name in names]
        files = {file for path in named for file in ([path] if path.is_file() else path.rglob("*"))}
    else:
        files = {file for pattern in patterns for file in ROOT.glob(pattern)}
    for file in sorted(files):
        path = file.relative_to(ROOT).as_posix()
        if file.suffix == ".md":
            yield from read_page(path, file.read_text())
        elif file.suffix == ".py":
            yield from read_source(path, file.read_text())


def main(arguments: list[str]) -> int:
    """Prints findings; 1 if there is one."""
    found = list(sentences(arguments))
    findings = [finding for sentence in found for finding in find_retired(sentence)]
    print(*findings, f"{len(findings)} findings in {len(found):,} sentences", sep="\n")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
