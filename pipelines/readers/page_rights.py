"""Finds licences of a page and its reservations of rights, in elements and HTTP headers. Pure.

`<meta name="robots">` and X-Robots-Tag have directives for robots, such as noai and noimageai.
`<meta name="tdm-reservation">` and the header TDM-Reservation are 1 if rights to text and data
mining are reserved, and tdm-policy is the URL of the conditions (W3C TDM Reservation Protocol).
"""

from collections.abc import Iterable, Mapping
from typing import Any

NO_RIGHTS = ("", "", "", "")  # those of a page without elements, in the order of `find_rights`
_OF_ELEMENTS = ("robots", "tdm_reservation", "tdm_policy", "license")
RIGHTS = (*_OF_ELEMENTS, "x_robots_tag")
"""Fields of a page; only WARC files have x_robots_tag."""
LISTS = ("tdm-reservation", "x-robots-tag")
"""Headers that may be repeated; their values are a list then."""
_MOST = 2000  # characters of a field; what is beyond is not read
_ELEMENTS = ", ".join(
    (
        *(f'meta[name="{name}" i]' for name in ("robots", "tdm-reservation", "tdm-policy")),
        '[rel~="license" i]',
        'a[href*="creativecommons.org/" i]',
    )
)
_FEW = 20  # elements; taking one of a selection costs time in the size of the selection
_CREATIVE_COMMONS = ("creativecommons.org/licenses/", "creativecommons.org/publicdomain/")


def find_rights(document: Any) -> tuple[str, str, str, str]:
    """The fields robots, tdm_reservation, tdm_policy and license of a parsed page.

    ("noindex, noai", "1", "https://a.example/policy", "https://creativecommons.org/licenses/by/4.0/")

    Args:
      document: the root of a tree of resiliparse.
    """
    values: dict[str, list[str]] = {"robots": [], "tdm-reservation": [], "tdm-policy": []}
    licenses: list[str] = []
    for element in _elements(document):
        if element.tag == "meta":
            name = element.get_attribute("name") or ""
            values.get(name.lower(), []).append(element.get_attribute("content") or "")
        url = element.get_attribute("href") or ""
        is_license = "license" in (element.get_attribute("rel") or "").lower().split()
        if is_license or any(mark in url.lower() for mark in _CREATIVE_COMMONS):
            licenses.append(_url(url))
    policies = map(_url, values["tdm-policy"])
    return (
        _join(_directives(values["robots"]), ", "),
        _reservation(values["tdm-reservation"]),
        next(filter(None, policies), "")[:_MOST],
        _join(licenses, " "),
    )


def rights_fields(
    found: tuple[str, ...], headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The fields RIGHTS of a page.

    A reservation in an element or a header counts; the policy of an element precedes that of a
    header.

    Args:
      found: what `find_rights` returns.
      headers: of the response, by name in lower case; those of LISTS joined by commas.
    """
    fields, headers = dict(zip(_OF_ELEMENTS, found, strict=True)), headers or {}
    reserved = headers.get("tdm-reservation", "").split(",")
    policy = _url(headers.get("tdm-policy", ""))[:_MOST]
    return {
        **fields,
        "tdm_reservation": _reservation([fields["tdm_reservation"], *reserved]),
        "tdm_policy": fields["tdm_policy"] or policy,
        "x_robots_tag": _join(_directives([headers.get("x-robots-tag", "")]), ", "),
    }


def _elements(document: Any) -> Iterable[Any]:
    """The elements of _ELEMENTS, in order; if there are many, all elements."""
    found = document.query_selector_all(_ELEMENTS)
    return (
        found
        if len(found) <= _FEW
        else (node for node in document if hasattr(node, "get_attribute"))
    )


def _directives(contents: Iterable[str]) -> Iterable[str]:
    """The directives in lower case: "googlebot: noindex" has the robot to which it applies."""
    return (" ".join(word.split()).lower() for text in contents for word in text.split(","))


def _url(text: str) -> str:
    """A URL without white space, which separates several."""
    return "%20".join(text.split())


def _reservation(contents: Iterable[str]) -> str:
    """1 if one of the values is 1, else 0 if one is 0, else ""."""
    return max((text.strip() for text in contents if text.strip() in ("0", "1")), default="")


def _join(values: Iterable[str], separator: str) -> str:
    """The different values, as many as a field has room for."""
    joined, size = [], 0
    for value in dict.fromkeys(filter(None, values)):
        size += len(value) + len(separator)
        if size > _MOST:
            break
        joined.append(value)
    return separator.join(joined)
