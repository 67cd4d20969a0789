"""Personal data: each form by hand, and any text beside regular expressions."""

import ipaddress
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from textmill.pipelines.corpus.rules.pii import Pii, judge
from textmill.schemas.errors import UsageError

FORMS = {
    "write to bob.smith+lists@mail.example.co.uk.": "write to <email>.",
    "<a_b@c-d.org>, 'e@f.de'; mailto:g@h.io?subject=x": "<<email>>, '<email>'; mailto:<email>?s"
    "ubject=x",
    "a@b me@localhost @user x@.com y@z.c0m q@-.de": "a@b me@localhost @user x@.com y@z.c0m q@-.de",
    "é@ü.de ålesund@example.no 请写信给abc@x.com谢谢": "é@ü.de å<email> 请写信给<email>谢谢",
    "npm@1.2.3 x.y@z.net.I a@b.c.d1.org- c@d.e-f.no--x": "npm@1.2.3 <email>.I <email>- <email>--x",
    "8.8.8.8, (1.1.1.1) and 9.9.9.9.": "<ip>, (<ip>) and <ip>.",
    "192.168.0.1 10.1.2.3 127.0.0.1 192.0.2.7": "192.168.0.1 10.1.2.3 127.0.0.1 192.0.2.7",
    "v8.8.8.8 8.8.8.8.8 8.8.8.300 8.8.8 08.8.8.8": "v8.8.8.8 8.8.8.8.8 8.8.8.300 8.8.8 08.8.8.8",
    "2001:4860:4860::8888 [2a00:1450:4001:80b::200e]:443": "<ip> [<ip>]:443",
    "12:30:45 a::b std::add fe80::1 ::1 2001:db8::1 :": "12:30:45 a::b std::add fe80::1 ::1 2001"
    ":db8::1 :",
    "+47 22 85 50 50 or +1 (212) 555-0123": "<phone> or <phone>",
    "(212) 555-0123, 212-555-0123, 1-212-555-0123": "<phone>, <phone>, <phone>",
    "1999-2004 10.000.000 2024-01-31 12345678901 3.14159265": "1999-2004 10.000.000 2024-01-31 "
    "12345678901 3.14159265",
    "x@y.org.x@y.org a@b.de-'c@d.no c.@d.no": "<email>.<email> <email><email> c.@d.no",
    "": "",
}


def test_each_form():
    judged = judge(column(list(FORMS)), True)
    assert judged.text is not None
    assert judged.text.to_pylist() == list(FORMS.values())
    assert judged.observed == {"pii": {"email": 13, "ip": 5, "phone": 5}}
    assert not judged.reason.any()


def test_phones_stay_where_they_are_not_asked_for():
    text = column(["a@b.de +47 22 85 50 50", "nothing"]).slice(1)
    assert judge(text, False).text is text
    judged = judge(column(["a@b.de +47 22 85 50 50"]), False)
    assert judged.text is not None
    assert judged.text.to_pylist() == ["<email> +47 22 85 50 50"]
    with pytest.raises(UsageError, match="--pii_phones=True: it needs pii=replace"):
        Pii(pii_phones=True)


PIECES = st.sampled_from(
    ["@", ".", "a", "b.", "de", "com", "-", "'", "1", "8.8.8.8", "1.2.3.4", "::", ":", "2001", "f"]
    + [" ", "\n", "é", "255", "256.", "+", "10.0.0.1", "2001:4860::1", "x@y.org"]
)


@given(st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=5))
@example(["x@y.org.x@y.org"])
def test_addresses_in_any_text(texts):
    judged = judge(column(texts), False)
    assert judged.text is not None
    for text, after in zip(texts, judged.text.to_pylist(), strict=True):
        for part in re.findall(r"(?<![\w.:@-])\d+\.\d+\.\d+\.\d+(?![\w:]|\.\d|\S*@)", text):
            try:
                is_public = ipaddress.ip_address(part).is_global
            except ValueError:
                is_public = False
            assert is_public <= ("<ip>" in after or "<email>" in after)
        left = re.sub("<(email|ip)>", "", after)
        assert re.search(r"[A-Za-z0-9]@(?:[A-Za-z0-9]+\.)+[A-Za-z]{2,}(?![\w.-])", left) is None
        assert ("<email>" in after) <= ("@" in text)
        if "@" not in text and ":" not in text and "8.8.8.8" not in text and "1.2.3.4" not in text:
            assert text == after or "<ip>" in after


@pytest.mark.parametrize(
    "part",
    ["a", "a.", "@", "a@", "a@b.", "1", "1.", "1:", ":", "+1 ", "(", "-"]
    + ["x@y.org.", "x@y.org.1", "x@b.de.1.1@"],
)
def test_long_runs_take_linear_time(part):
    text = part * 300_000
    began = time.process_time()
    assert judge(column([text + " @ 1.2.3.4 1::2"]), True).text is not None
    assert time.process_time() - began < 10
