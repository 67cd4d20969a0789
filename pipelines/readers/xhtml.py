"""Pages in XML -> markup that a parser of HTML reads as the same elements and text. Pure."""

import html
import re
from collections.abc import Iterator

# The elements of HTML without an end tag.
_VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param")
_VOID += ("source", "track", "wbr")
_RAW = ("script", "style")  # whose content is not markup in HTML
_ENDS = {"!--": "-->", "![CDATA[": "]]>", "?": "?>", "!DOCTYPE": ">"}
# No byte of a tag can be matched in two ways, and `<` ends a tag: linear time for any text.
_TOKEN = re.compile(
    r"""<(?:(!--|!\[CDATA\[|\?|!DOCTYPE\b)"""
    r"""|([^\s!?/<>]++)((?:[^<>"'/]++|"[^<"]*+"|'[^<']*+'|/(?!>))*+)(/?)>)"""
)


def to_html(markup: str) -> str:
    """The markup of a page in XML as HTML.

        <title/><script src="a.js"/><br/><p>1 <![CDATA[< 2]]> ->
        <title></title><script src="a.js"></script><br/><p>1 &lt; 2

    Instructions and the declaration of a document type are skipped.
    """
    return "".join(_pieces(markup))


def _pieces(markup: str) -> Iterator[str]:
    at = 0
    while token := _TOKEN.search(markup, at):
        yield markup[at : token.start()]
        kind, name, attributes, slash = token.groups()
        begin, stop = token.span()
        if kind:
            end, inner = _ENDS[kind], stop
            if kind == "!DOCTYPE" and "[" in markup[stop : markup.find(">", stop)]:
                inner = markup.find("]", stop)  # of declarations, each with a `>`
            close = markup.find(end, inner) if inner >= 0 else -1
            if close < 0:
                at = begin
                break
            at = close + len(end)
            if kind == "!--":
                yield markup[begin:at]
            elif kind == "![CDATA[":
                yield html.escape(markup[stop:close], quote=False)
        elif slash and name not in _VOID:
            at = stop
            yield f"<{name}{attributes}></{name}>"
        else:
            at = stop
            if name in _RAW and not slash:
                at = markup.find(f"</{name}", stop)
                at = len(markup) if at < 0 else at
            yield markup[begin:at]
    yield markup[at:]
