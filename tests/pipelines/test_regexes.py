"""Every regular expression that meets the text of others takes linear time.

Python's `re` counts no steps. So each pattern meets long strings that are made of its own parts:
what stands before a loop, the loop's body again and again, and something that does not match. A
child process runs it with a limit of processor time: a pattern that takes linear time needs
milliseconds, one that takes quadratic time more than the limit.
"""

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import textmill.pipelines.corpus.rules
import textmill.pipelines.encoding
import textmill.pipelines.readers
import textmill.pipelines.readers.formats
import textmill.pipelines.tasks
import textmill.schemas
from textmill.schemas.limited_process import LimitedProcess, LimitExceeded

PACKAGES = (
    textmill.pipelines.readers,
    textmill.pipelines.readers.formats,
    textmill.pipelines.corpus.rules,
    textmill.pipelines.encoding,
    textmill.pipelines.tasks,
    textmill.schemas,
)
ALONE = (
    "textmill.pipelines.corpus.english.tokenizer",
    "textmill.pipelines.corpus.english.metrics",
    "textmill.trainers.metrics.squad_scores",
)
# The standard library's own parser of patterns.
_PARSER: Any = importlib.import_module("re._parser")
_COMPILER: Any = importlib.import_module("re._compiler")
# It only meets whole addresses, which _PERSONAL found.
NOT_ALONE = {"textmill.pipelines.corpus.rules.pii._WHOLE_ADDRESS"}
LENGTH, SECONDS = 80_000, 0.8
MOST = 8  # bodies of a loop that are tried
METHODS = ("match", "fullmatch", "search", "sub", "subn", "finditer", "findall", "split")
PROBES = " a0<>\"'-=/.\n:;,{}[]()&@#+%\\_é!\0"
# Found in pages of the web.
HAND_MADE = ("<!-- x -->", "<!--", "<a b=c ", "<meta ", "<meta charset", "charset=", "charset ")
HAND_MADE += (
    "<?xml ",
    "<script",
    "<![CDATA[",
    "a.",
    "a@",
    "www.a.",
    "1.",
    ":",
    "1:",
    "\n \n",
    "+1 ",
)

PROGRAM = f"""
import json, re
def answer(request):
    pattern, flags, is_bytes, methods, parts = json.loads(request)
    pattern = re.compile(pattern.encode("latin-1") if is_bytes else pattern, flags)
    for head, body, tail in parts:
        text = head + body * ({LENGTH} // len(body)) + tail
        text = text.encode("latin-1", "replace") if is_bytes else text
        for method in methods:
            found = getattr(pattern, method)(*([text[:0]] if "sub" in method else []), text)
            if method == "finditer":
                for _ in found: pass
    return b""
"""


def modules() -> list[str]:
    names = [*ALONE]
    for package in PACKAGES:
        prefix = f"{package.__name__}."
        names += [module.name for module in pkgutil.iter_modules(package.__path__, prefix)]
    return names


def patterns(value: Any) -> Iterator[re.Pattern]:
    """The compiled patterns in a variable of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from patterns(tuple(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from patterns(item)


def all_patterns() -> Iterator[tuple[str, re.Pattern, tuple[str, ...]]]:
    """Name, pattern and the methods that the module calls."""
    for name in modules():
        module = importlib.import_module(name)
        source = inspect.getsource(module)
        for variable, value in vars(module).items():
            found = list(patterns(value))
            called = re.findall(rf"\b{variable}(?:\[\w+\])?\.({'|'.join(METHODS)})\b", source)
            for pattern in found if f"\n{variable} =" in source else ():
                yield f"{name}.{variable}", pattern, tuple(sorted({*called})) or ("finditer",)


def parts(pattern: re.Pattern) -> Iterator[tuple[str, str, str]]:
    """Head, body and tail of strings that are hard for a pattern."""
    text = pattern.pattern
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    tree: Any = _PARSER.parse(text, pattern.flags & ~re.UNICODE)
    seen = {("", body, "") for body in HAND_MADE}
    for head, body in _loops(tree, ""):
        seen.update((head, body, tail) for tail in ("", "\0"))
        seen.update(("", head + body, tail) for tail in ("", "\0"))
        seen.update(("", piece, "") for piece in (head, *(head + c for c in PROBES)) if piece)
    yield from sorted(seen)


def _loops(sequence: Any, head: str) -> Iterator[tuple[str, str]]:
    """What stands before each loop, and its body."""
    for item in sequence:
        for inner, body in _bodies(item):
            yield from _loops(inner, head)
            if body:
                yield from ((head, text) for text in _texts(inner)[:MOST] if text)
        head += _texts([item])[0]


def _bodies(item: Any) -> Iterator[tuple[Any, bool]]:
    """The sequences inside an item, and whether each is the body of a loop."""
    kind, value = str(item[0]), item[1]
    if kind.endswith("_REPEAT"):
        yield value[2], value[1] > 1
    elif kind == "SUBPATTERN":
        yield value[-1], False
    elif kind == "BRANCH":
        yield from ((branch, False) for branch in value[1])
    elif kind == "ATOMIC_GROUP":
        yield value, False
    elif kind in ("ASSERT", "ASSERT_NOT"):
        yield value[1], False


def _texts(sequence: Any) -> list[str]:
    """Some texts that a sequence matches: a typical one, and others with one item changed."""
    choices = [_choices(item) for item in sequence]
    first = [choice[0] for choice in choices]
    texts = ["".join(first)]
    for n, choice in enumerate(choices):
        texts += ["".join([*first[:n], other, *first[n + 1 :]]) for other in choice[1:]]
    return texts


def _choices(item: Any) -> list[str]:
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return [chr(value)]
    if kind in ("ANY", "IN", "NOT_LITERAL"):
        tree = _PARSER.SubPattern(_PARSER.State(), [item])
        matches = _COMPILER.compile(tree, re.DOTALL).match
        return (
            [c for c in PROBES if matches(c)]
            or [c for c in map(chr, range(0x3000)) if matches(c)][:1]
            or [""]
        )
    if kind.startswith("ASSERT"):
        return [""]
    texts = [text for inner, _ in _bodies(item) for text in _texts(inner)] or [""]
    return [text * max(value[0], 1) for text in texts] if kind.endswith("_REPEAT") else texts


@pytest.fixture(scope="module")
def child():
    made = LimitedProcess(PROGRAM, seconds=SECONDS)
    yield made
    made.close()


def too_slow(child, pattern: re.Pattern, methods: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The parts of some texts, on one of which at least a pattern takes too long."""
    text, is_bytes = pattern.pattern, isinstance(pattern.pattern, bytes)
    text = text.decode("latin-1") if is_bytes else text
    hard = list(parts(pattern))
    for n in range(0, len(hard), 5):
        request = (text, pattern.flags, is_bytes, methods, hard[n : n + 5])
        [answer] = child.ask_all([json.dumps(request).encode()])
        if isinstance(answer, LimitExceeded):
            return hard[n : n + 5]
    return []


def test_each_pattern_takes_linear_time(child):
    found = [
        (name, too_slow(child, pattern, methods))
        for name, pattern, methods in all_patterns()
        if name not in NOT_ALONE
    ]
    assert {name: slow for name, slow in found if slow} == {}
    assert len(found) > 50


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (rb"(?s)(?:\s|<!--.*?-->)*<html", "match"),
        (r"(?i)charset\s*=\s*[\"']?\s*([\w:.-]+)", "search"),
        (rb"(?s)<!--.*?-->", "finditer"),
        (r"<[^>\"]*(?:\"[^\"]*\"[^>\"]*)*>", "sub"),
        (r"<[a-z](?:[^>\s=]*+(?:\s++|=\s*+[^\s>]*+)){1000}", "search"),
        (r"(?:a|ab?c?)*d", "match"),
        (r"\w+@\w+", "search"),
        (r"\s+$", "search"),
        (r"x*(?=\d*y)\d*z", "search"),
    ],
)
def test_patterns_that_take_longer_are_found(child, pattern, method):
    assert too_slow(child, re.compile(pattern), (method,))
