"""Personal data becomes placeholders: <email>, <ip> and, where asked, <phone>.

As datatrove's PIIFormatter and Dolma's taggers do for FineWeb and Dolma, addresses are found by
their form. A placeholder is no address, so that a model learns none; datatrove puts other addresses
in their place. What is found:
  - e-mail addresses: letters, digits and signs, @, and a domain with a dot that ends in letters;
  - IPv4 and IPv6 addresses that are public (`ipaddress.is_global`): 192.168.0.1 and versions with
    more parts (1.2.3.4.5) stay;
  - with --pii_phones, numbers with a plus and 8 to 15 digits, and those of North America with
    separators: (212) 555-0123. Numbers of other forms cannot be told from dates and prices.

Arrow finds the documents that may have any, at the speed of RE2; Python's expressions look at these
alone. They take linear time: a run of letters is begun once, and parts have the lengths of RFCs.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.corpus.rules.rule import Family, Judged, Rule
from pipelines.host.arrow import pc
from schemas.errors import UsageError

# RFC 5322's atoms with dots, without / = ? & of URLs.
_LOCAL = r"[\w.!#$%'*+^`{|}~-]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EMAIL = (
    rf"(?<!{_LOCAL})[.'`]*+(?P<email>(?>{_LOCAL}+)(?<!\.)@"
    rf"(?:{_LABEL}\.)+[A-Za-z]{{2,63}}(?![A-Za-z0-9]))"
)
_NO_EMAIL = rf"(?!{_LOCAL}{{0,64}}@)"  # of which the end of an IP address may be the beginning
_IP = (
    rf"(?<![\w.])(?P<ip>\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?!\w|\.\d){_NO_EMAIL}"
    r"|(?<![\w:])(?P<ipv6>[0-9a-fA-F]{1,4}:[0-9a-fA-F:]{1,36}[0-9a-fA-F])(?!\w|:\w)" + _NO_EMAIL
)
_PHONE = (
    r"(?<![\d+])(?P<phone>\+\d(?:[ ().-]{0,2}\d){7,14}|(?:\+?1[ .-]?)?"
    r"(?:\([2-9]\d\d\)[ .-]?|[2-9]\d\d[.-]|[2-9]\d\d )[2-9]\d\d[ .-]\d{4})(?![\d-])"
)
_IPV6 = ipaddress.ip_network("2000::/3")  # all of it that is given to anybody
# What a document has that may have any, as RE2 finds it.
_TRACES = r"@|\d\.\d{1,3}\.\d{1,3}\.\d|:[0-9a-fA-F]{0,4}:"
_PHONE_TRACES = r"\+\d|\d{3}\)?[ .-]{0,2}\d{3}[ .-]\d{4}"


@dataclass(frozen=True)
class Pii(Family):
    """Personal data that can be found by its form; for any language."""

    pii: Literal["keep", "replace"] = "keep"
    """replace puts <email> for e-mail addresses and <ip> for public IP addresses."""
    pii_phones: bool = False
    """Put <phone> for phone numbers, too: those with a plus, and North American ones."""

    def __post_init__(self) -> None:
        """Refuses a flag that does nothing."""
        if self.pii_phones and self.pii != "replace":
            raise UsageError("--pii_phones is of --pii=replace: give that too")

    def parameters(self) -> dict[str, Any]:
        """Both flags, where they do something."""
        return vars(self) if self.pii == "replace" else {}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which edits documents and drops none."""
        if self.pii == "replace":
            yield Rule(("pii:empty",), lambda text: judge(text, self.pii_phones), edits="pii")


def judge(text: pa.LargeStringArray, phones: bool) -> Judged:
    """Puts placeholders into documents, and counts them by kind."""
    pattern = re.compile("|".join((_EMAIL, _IP, _PHONE)[: 2 + phones]), re.A)
    traces = f"{_TRACES}|{_PHONE_TRACES}" if phones else _TRACES
    counts: Counter[str] = Counter()

    def replace(found: re.Match[str]) -> str:
        kind, value = found.lastgroup or "", found[0]
        begin = found.start(kind) - found.start()
        if kind.startswith("ip"):
            kind = "ip"
            if not _is_public(value[begin:]):
                return value
        counts[kind] += 1
        return f"{value[:begin]}<{kind}>"

    # pyright: ignore comments: Arrow's compute functions are made when it is imported.
    mask = pc.match_substring_regex(text, pattern=traces)
    suspects = text.filter(mask).to_pylist()
    edited = [pattern.sub(replace, document) for document in suspects]
    if not counts:
        return Judged(np.zeros(len(text), bool), text)
    after = pc.replace_with_mask(text, mask, pa.array(edited, pa.large_string()))
    return Judged(np.zeros(len(text), bool), after, {"pii": dict(counts)})


def _is_public(value: str) -> bool:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return address.is_global and (address.version == 4 or address in _IPV6)
