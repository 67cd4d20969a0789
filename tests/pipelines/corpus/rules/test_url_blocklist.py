"""Documents are dropped by their address."""

import pytest

from pipelines.corpus.filters import Filters, rules_of
from pipelines.corpus.rules.url_blocklist import Blocklist, UrlBlocklist, judge
from schemas.errors import UsageError
from tests.tools.filter_factory import column

ENTRIES = ["bad.com", "blog.example.org", "good.net/forum/", "http://www.Shop.de/a?b=1", "casino"]
ENTRIES += ["bücher.example", "10.0.0.1"]
DOMAIN, ADDRESS, WORD = 1, 2, 3
CASES = {
    "https://bad.com": (DOMAIN, "bad.com"),
    "http://WWW.Bad.com:8080/x": (DOMAIN, "bad.com"),
    "//user:secret@a.b.bad.com./x": (DOMAIN, "bad.com"),
    "bad.com/casino": (DOMAIN, "bad.com"),
    "http://notbad.com": (0, ""),
    "http://bad.com.org": (0, ""),
    "http://example.org/blog": (0, ""),
    "https://blog.example.org/a": (DOMAIN, "blog.example.org"),
    "http://xn--bcher-kva.example/": (DOMAIN, "xn--bcher-kva.example"),
    "http://bücher.example/": (DOMAIN, "xn--bcher-kva.example"),
    "ftp://10.0.0.1/": (DOMAIN, "10.0.0.1"),
    "http://good.net/forum": (ADDRESS, "good.net/forum"),
    "http://good.net/forum/thread?x=1": (ADDRESS, "good.net/forum"),
    "http://good.net/forums": (0, ""),
    "http://good.net/": (0, ""),
    "https://shop.de/a?b=1&c=2": (ADDRESS, "shop.de/a?b=1"),
    "https://shop.de/a?b=12": (0, ""),
    "http://x.org/online-CASINO_now": (WORD, "casino"),
    "http://x.org/%63asino": (WORD, "casino"),
    "http://casino.org/": (WORD, "casino"),
    "http://casinos.org/": (0, ""),
    "": (0, ""),
    "not an address": (0, ""),
}


def test_each_form_of_an_address():
    judged = judge(column(list(CASES)), Blocklist.of(ENTRIES))
    assert judged.measured is not None
    found = list(zip(judged.reason.tolist(), judged.measured.tolist(), strict=True))
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_a_url_of_any_length_is_judged_in_linear_time():
    """All suffixes of a host of 64 kB are 1 GB."""
    url = f"http://{'a.' * 99_999}bad.com/{'b/' * 99_999}"
    judged = judge(column([url, url.replace("bad", "good")]), Blocklist.of(ENTRIES))
    assert judged.reason.tolist() == [DOMAIN, 0]


def test_lists_are_recorded_by_their_entries(tmp_path):
    first, second, one = (tmp_path / f"{name}.txt" for name in ("first", "second", "one"))
    first.write_text("# comment\nbad.com\n\n")
    second.write_text("casino\nbad.com\n")
    one.write_text("bad.com\ncasino")
    both = UrlBlocklist(url_blocklist=(str(first), str(second)))
    assert UrlBlocklist(url_blocklist=(str(one),)).parameters() == both.parameters()
    assert rules_of(Filters()) == ()


def test_a_list_that_is_no_list(tmp_path):
    empty, other = tmp_path / "empty.txt", tmp_path / "other.bin"
    empty.write_text("# nothing\n")
    other.write_bytes(b"\xff\xfe")
    for path, said in ((empty, "has no entry"), (other, "cannot be read")):
        with pytest.raises(UsageError, match=said):
            UrlBlocklist(url_blocklist=(str(path),)).parameters()
    with pytest.raises(UsageError, match="nowhere.txt cannot be read"):
        UrlBlocklist(url_blocklist=("nowhere.txt",)).parameters()
