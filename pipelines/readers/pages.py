"""Converts web pages in a child process that bounds the time and memory of each.

`html_text` rejects pages whose form is known to be costly. No such list is complete: parsers of
HTML take quadratic time or memory in many forms, and may crash.
"""

import marshal
from collections.abc import Sequence

from pipelines.readers.html_text import Page, UnusablePageError, read_page
from schemas.limited_process import LimitedProcess

# Usual pages take 0.15 s and 25 MB for each MB with resiliparse, and 1 s with trafilatura.
_CHILD = LimitedProcess(
    f"from {__name__} import answer", seconds=5, size=1 << 30, more_seconds=5e-6, more_size=16
)


def convert_pages(pages: Sequence[tuple[bytes, str]], html: str) -> list[Page | UnusablePageError]:
    """The pages that `read_page` makes of bytes and content types, or the reason for having none.

    Args:
      pages: (bytes, content type); all are sent to the child process at once.
      html: main, all or trafilatura.
    """
    found = []
    for answer in _CHILD.ask_all([marshal.dumps((*page, html)) for page in pages]):
        value = marshal.loads(answer) if isinstance(answer, bytes) else "page_too_costly"
        found.append(UnusablePageError(value) if isinstance(value, str) else Page(*value))
    return found


def answer(request: bytes) -> bytes:
    """Converts a page; runs in the child process.

    Args:
      request: marshal of the arguments of `read_page`.

    Returns:
      marshal of (text, title, URL), or of the reason for having none.
    """
    try:
        page = read_page(*marshal.loads(request))
    except UnusablePageError as error:
        return marshal.dumps(error.reason)
    return marshal.dumps((page.text, page.title, page.url))
