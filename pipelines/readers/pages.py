"""Converts web pages in a child process that bounds the time and memory of each.

`html_text` rejects pages whose form is known to be costly. No such list is complete: parsers of
HTML take quadratic time or memory in many forms, and may crash.
"""

import functools
import json
import marshal
from collections.abc import Sequence

from textmill.pipelines.readers.html_text import (
    REASONS,
    Extraction,
    Page,
    UnusablePageError,
    read_page,
)
from textmill.pipelines.readers.page_rights import NO_RIGHTS
from textmill.schemas.errors import DataError
from textmill.schemas.limited_process import LimitedProcess, LimitExceeded
from textmill.schemas.typed_json import parse_json

# An article of some paragraphs, so that all loops that find and write a main text are compiled.
SAMPLE = (
    b"<p>This page is converted first, so that all that pages need is compiled or loaded before "
    b"their time is limited."
    b"<p>One paragraph is too short for it: a page of a single answer is a discussion, whose "
    b"comments are not looked for."
    b"<p>With a third one it is an article like any other, and its main content is what you read."
)


@functools.cache
def _child(html: str) -> LimitedProcess:
    """The child for a value of --html; the first page finds everything loaded."""
    program = f"from {__name__} import answer, prepare\nprepare({html!r})"
    # Usual pages take 0.15 s and 25 MB for each MB with resiliparse, and 1 s with trafilatura.
    return LimitedProcess(program, seconds=5, size=1 << 30, more_seconds=5e-6, more_size=16)


def prepare(html: str) -> None:
    """Loads what `answer` needs, before its time and memory are limited."""
    read_page(SAMPLE, "text/html", Extraction(html))


def convert_pages(
    pages: Sequence[tuple[bytes, str]], extraction: Extraction
) -> list[Page | UnusablePageError]:
    """The pages that `read_page` makes of bytes and content types, or the reason for having none.

    Args:
      pages: (bytes, content type); all are sent to the child process at once.
      extraction: what text is taken.
    """
    requests = [marshal.dumps((*page, *vars(extraction).values())) for page in pages]
    return list(map(_parse, _child(extraction.html).ask_all(requests)))


def _parse(answer: bytes | LimitExceeded) -> Page | UnusablePageError:
    """The page of an answer, which is untrusted: a page may have taken over the child's parser."""
    if isinstance(answer, LimitExceeded):
        return UnusablePageError("page_too_costly")
    try:
        value = parse_json(answer, "the answer")
    except DataError:
        return UnusablePageError("html_broken")
    match value:
        case [str(text), str(title), str(url), float(share), [*rights]] if 0 <= share <= 1:
            if len(rights) == len(NO_RIGHTS) and all(isinstance(each, str) for each in rights):
                return Page(text, title, url, share, tuple(rights))
        case str() if value in REASONS:
            return UnusablePageError(value)
    return UnusablePageError("html_broken")


def answer(request: bytes) -> bytes:
    """Converts a page; runs in the child process.

    Args:
      request: marshal of bytes, content type and the values of an Extraction.

    Returns:
      JSON: [text, title, URL, share, rights], or the reason for having none.
    """
    try:
        data, content_type, *values = marshal.loads(request)
        page = read_page(data, content_type, Extraction(*values))
        value = (page.text, page.title, page.url, page.share, page.rights)
    except UnusablePageError as error:
        value = error.reason
    except MemoryError:  # ends the child, as other costs do
        raise
    except Exception:  # one page must not end a run; `prepare` finds what fails on every page
        value = "html_broken"
    return json.dumps(value, ensure_ascii=False).encode()
