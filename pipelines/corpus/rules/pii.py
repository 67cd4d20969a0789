"""--pii: replaces personal data with the placeholders <email>, <ip> and <phone>.

Addresses are found by their form, as by datatrove's PIIFormatter (FineWeb) and Dolma's taggers.
192.168.0.1 is kept, and so are version numbers with more parts (1.2.3.4.5). Phone numbers have a
plus and 8 to 15 digits, or the North American form with separators, (212) 555-0123; other forms
look like dates and prices.

RE2 in Arrow finds documents that may have some, and Python's `re` edits only these. Its patterns
take linear time: none starts twice in a run of letters, and parts are as short as RFCs allow.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.commands.values import take_values
from textmill.schemas.errors import FieldError

# RFC 5322's atoms with dots, without / = ? & of URLs.
_LOCAL = r"[\w.!#$%'*+^`{|}~-]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = rf"([.'`]*+)(?>{_LOCAL}+)(?<!\.)@(?:{_LABEL}\.)+[A-Za-z]{{2,63}}(?![A-Za-z0-9])"
# One match for both addresses of "a@b.org.c@d.org": the lookbehind would reject the second alone.
_EMAIL = rf"(?<!{_LOCAL})(?P<email>(?:{_ADDRESS})+)"
_NO_EMAIL = rf"(?!{_LOCAL}{{0,64}}@)"  # the end of an IP address may begin an e-mail address
_IP = (
    rf"(?<![\w.])(?P<ip>\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?!\w|\.\d){_NO_EMAIL}"
    r"|(?<![\w:])(?P<ipv6>[0-9a-fA-F]{1,4}:[0-9a-fA-F:]{1,36}[0-9a-fA-F])(?!\w|:\w)" + _NO_EMAIL
)
_PHONE = (
    r"(?<![\d+])(?P<phone>\+\d(?:[ ().-]{0,2}\d){7,14}|(?:\+?1[ .-]?)?"
    r"(?:\([2-9]\d\d\)[ .-]?|[2-9]\d\d[.-]|[2-9]\d\d )[2-9]\d\d[ .-]\d{4})(?![\d-])"
)
_PERSONAL = tuple(re.compile("|".join((_EMAIL, _IP, _PHONE)[:n]), re.A) for n in (2, 3))
_WHOLE_ADDRESS = re.compile(_ADDRESS, re.A)
_IPV6 = ipaddress.ip_network("2000::/3")  # all public unicast addresses
# Patterns for RE2 that match any document with personal data.
_TRACES = r"@|\d\.\d{1,3}\.\d{1,3}\.\d|:[0-9a-fA-F]{0,4}:"
_PHONE_TRACES = r"\+\d|\d{3}\)?[ .-]{0,2}\d{3}[ .-]\d{4}"


@dataclass(frozen=True)
class Pii(RuleGroup):
    """Replace personal data with placeholders, in any language."""

    pii: Literal["keep", "replace"] = "keep"
    """Whether to replace e-mail addresses with <email> and public IP addresses with <ip>."""
    pii_phones: bool = False
    """Replace phone numbers with <phone>: those with a plus, and North American ones. Needs
    --pii=replace."""

    def __post_init__(self) -> None:
        """Rejects --pii_phones without --pii=replace."""
        take_values(self)
        if self.pii_phones and self.pii != "replace":
            raise FieldError("pii_phones", True, "it needs pii=replace")

    def parameters(self) -> dict[str, Any]:
        """Both flags; {} if personal data is kept."""
        return super().parameters() if self.pii == "replace" else {}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which edits documents and drops none."""
        if self.pii == "replace":
            yield Rule(("pii:empty",), lambda text: judge(text, self.pii_phones), edits="pii")


def judge(text: pa.LargeStringArray, phones: bool) -> RuleResult:
    """Replaces personal data with placeholders, and counts these by kind."""
    traces = f"{_TRACES}|{_PHONE_TRACES}" if phones else _TRACES
    counts: Counter[str] = Counter()

    def replace(match: re.Match[str]) -> str:
        kind, value = match.lastgroup or "", match[0]
        if kind == "email":
            value, count = _WHOLE_ADDRESS.subn(r"\1<email>", value)
            counts[kind] += count
            return value
        if kind.startswith("ip"):
            kind = "ip"
            if not _is_public(value):
                return value
        counts[kind] += 1
        return f"<{kind}>"

    mask = pc.match_substring_regex(text, pattern=traces)
    suspects = text.filter(mask).to_pylist()
    edited = [_PERSONAL[phones].sub(replace, document) for document in suspects]
    if not counts:
        return RuleResult(np.zeros(len(text), bool), text)
    after = pc.replace_with_mask(text, mask, pa.array(edited, pa.large_string()))
    return RuleResult(np.zeros(len(text), bool), after, {"pii": dict(counts)})


def _is_public(value: str) -> bool:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return address.is_global and (address.version == 4 or address in _IPV6)
