"""Documents are dropped by their address."""

import idna
import pytest

from tests.tools.filter_factory import column
from textmill.pipelines.corpus.filters import Filters, rules_of
from textmill.pipelines.corpus.rules.url_blocklist import (
    Blocklist,
    UrlBlocklist,
    judge,
    parse_line,
    plain_host,
)
from textmill.schemas.errors import UsageError

ENTRIES = ["bad.com", "blog.example.org", "good.net/forum/", "http://www.Shop.de/a?b=1", "casino"]
ENTRIES += ["bücher.example", "10.0.0.1", "2001:db8::1", "казино"]
DOMAIN, ADDRESS, WORD = 1, 2, 3


def blocklist_of(lines):
    return Blocklist.of(key for line in lines for key in parse_line(line))


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
    # A port without a scheme, users, and hosts as browsers read them.
    "bad.com:8080/x": (DOMAIN, "bad.com"),
    "bad.com:8080": (DOMAIN, "bad.com"),
    "good.net:80/forum": (ADDRESS, "good.net/forum"),
    "http://user@bad.com/": (DOMAIN, "bad.com"),
    "user:secret@bad.com/": (DOMAIN, "bad.com"),
    "http://good.org@bad.com/": (DOMAIN, "bad.com"),
    "http://a@b@bad.com/": (DOMAIN, "bad.com"),
    "http://bad.com@good.org/": (0, ""),
    "http://good.org/?u=@bad.com/": (0, ""),
    "http://%62ad.com/": (DOMAIN, "bad.com"),
    "http://b%61d%2Ecom:80/": (DOMAIN, "bad.com"),
    "HTTP://BAD.COM./": (DOMAIN, "bad.com"),
    "http:bad.com/": (DOMAIN, "bad.com"),
    "http:///bad.com/": (DOMAIN, "bad.com"),
    "http:\\\\bad.com\\x": (DOMAIN, "bad.com"),
    " http://ba\nd.com/ ": (DOMAIN, "bad.com"),
    "http://ｂａｄ。com/": (DOMAIN, "bad.com"),
    "http://ba\u00add.com/": (DOMAIN, "bad.com"),
    "http://B%C3%BCcher.example/": (DOMAIN, "xn--bcher-kva.example"),
    "http://BU\u0308CHER.example/": (DOMAIN, "xn--bcher-kva.example"),
    "http://XN--BCHER-KVA.example:80/": (DOMAIN, "xn--bcher-kva.example"),
    "http://[2001:DB8:0:0::1]:80/": (DOMAIN, "[2001:db8::1]"),
    "http://[2001:db8::2]/": (0, ""),
    "http://good.net/%66orum/x": (ADDRESS, "good.net/forum"),
    "http://good.net/forum#top": (ADDRESS, "good.net/forum"),
    "http://x.org/казино": (WORD, "казино"),
    "http://x.org/%D0%9A%D0%B0%D0%B7%D0%B8%D0%BD%D0%BE": (WORD, "казино"),
    "http://xn--80aswg.example/": (0, ""),
    f"http://{'казино'.encode('idna').decode()}.example/": (WORD, "казино"),
    f"http://xn--{'9' * 99}.xn--.example/": (0, ""),
}


def test_each_form_of_an_address():
    judged = judge(column(list(CASES)), blocklist_of(ENTRIES))
    assert judged.measured is not None
    found = list(zip(judged.reason.tolist(), judged.measured.tolist(), strict=True))
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_a_url_of_any_length_is_judged_in_linear_time():
    """All suffixes of a host of 64 kB are 1 GB; punycode of a long label takes quadratic time."""
    url = f"http://{'a.' * 99_999}bad.com/{'b/' * 99_999}"
    urls = [url, url.replace("bad", "good"), f"http://{'ü' * 99_999}.com/", "//" * 99_999]
    urls += [f"http://{'@' * 99_999}bad.com", f"{'a:' * 99_999}//bad.com", "%62" * 99_999]
    judged = judge(column(urls), blocklist_of(ENTRIES))
    assert judged.reason.tolist() == [DOMAIN, 0, 0, 0, DOMAIN, 0, 0]


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        # comments
        ("", []),
        ("  # evil.example", []),
        ("## evil", []),
        ("! evil.example", []),
        ("[Adblock Plus 2.0]", []),
        ("evil.example # seen in May", ["0evil.example"]),
        ("evil.example\t#", ["0evil.example"]),
        # domains
        ("evil.example", ["0evil.example"]),
        ("WWW.Evil.example.", ["0evil.example"]),
        ("evil.example/", ["0evil.example"]),
        ("http://evil.example", ["0evil.example"]),
        ("evil.example:8080", ["0evil.example"]),
        ("https://evil.example:8080/", ["0evil.example"]),
        ("*.evil.example", ["0evil.example"]),
        (".evil.example", ["0evil.example"]),
        (".www.evil.example", ["0evil.example"]),
        ("*://*.evil.example/*", ["0evil.example"]),
        ("evil_one.example", ["0evil_one.example"]),
        ("10.0.0.1", ["010.0.0.1"]),
        ("2001:DB8::0:1", ["0[2001:db8::1]"]),
        ("[2001:db8::1]:80", ["0[2001:db8::1]"]),
        ("straße.example", ["0xn--strae-oqa.example"]),
        # hosts files
        ("0.0.0.0 evil.example", ["0evil.example"]),
        ("127.0.0.1\tEvil.example www.bad.example # two", ["0evil.example", "0bad.example"]),
        ("::1 evil.example", ["0evil.example"]),
        ("127.0.0.1 localhost", []),
        ("127.0.0.1 localhost.localdomain", []),
        ("0.0.0.0 0.0.0.0", []),
        ("fe80::1%lo0 localhost", []),
        ("ff02::1 ip6-allnodes", []),
        # adblock
        ("||evil.example^", ["0evil.example"]),
        ("||evil.example", ["0evil.example"]),
        ("||evil.example^*", ["0evil.example"]),
        ("||*.evil.example^", ["0evil.example"]),
        ("||evil.example^$document,popup", ["0evil.example"]),
        ("||evil.example^$all", ["0evil.example"]),
        ("||evil.example/forum^", ["1evil.example/forum"]),
        ("|https://evil.example/forum|", ["1evil.example/forum"]),
        # beginnings of URLs, and words
        ("evil.example/a?b=1", ["1evil.example/a?b=1"]),
        ("evil.example:80/Forum/", ["1evil.example/forum"]),
        ("evil.example/forum/*", ["1evil.example/forum"]),
        ("evil.example/%66orum", ["1evil.example/forum"]),
        ("http://10.0.0.1/x", ["110.0.0.1/x"]),
        ("Casino", ["2casino"]),
        ("8080", ["28080"]),
        ("КАЗИНО", ["2казино"]),
    ],
)
def test_each_form_of_an_entry(line, keys):
    assert parse_line(line) == keys


@pytest.mark.parametrize(
    "line",
    [
        "online casino",
        "evil.example good.example",
        "evil.example,casino",
        "online-casino",
        "casino/",
        "http://casino",
        "localhost:8080",
        "/ads/banner",
        "evil..example",
        "*evil.example",
        "evil.*",
        "evil.example/forum*",
        "@@||good.example^",
        "||evil.example^$third-party",
        "||evil.example^$document,domain=good.example",
        "good.example##.advert",
        "good.example#@#.advert",
        "/evil[0-9]+/",
        "-advert-banner.",
        "0.0.0.0 evil..example",
        "address=/evil.example/0.0.0.0",
        f"{'a' * 64}.example",
        "*",
        "||",
    ],
)
def test_a_line_that_is_no_entry_is_named(line, tmp_path):
    path = tmp_path / "list.txt"
    path.write_text(f"\ufeffevil.example\n\n{line}\nbad.example\n")
    with pytest.raises(UsageError) as error:
        UrlBlocklist(url_blocklist=(str(path),)).parameters()
    said = f"--url_blocklist={path}, line 3: {line!r} "
    assert str(error.value).startswith(said) and str(error.value).endswith(
        "; correct or remove the line"
    )


@pytest.mark.parametrize(
    "host",
    [
        "bücher.de",
        "BÜCHER.de",
        "straße.de",
        "ΣΊΣΥΦΟΣ.gr",
        "例え。テスト",
        "ｂａｄ.com",
        "faß.xn--p1ai",
        "кот.рф",
    ],
)
def test_a_host_is_what_idna_makes_of_it(host):
    assert plain_host(host.lower()) == idna.encode(host, uts46=True).decode()


def test_a_port_is_no_word():
    """The list that blocked pages with 8080 in their path, and no page of the host."""
    urls = ["evil.example:8080/x", "http://evil.example:8080/x", "http://evil.example/"]
    urls += ["http://good.example/item/8080", "http://good.example/item/7"]
    judged = judge(column(urls), blocklist_of(["evil.example:8080"]))
    assert judged.reason.tolist() == [DOMAIN, DOMAIN, DOMAIN, 0, 0]


def test_lists_are_recorded_by_their_entries(tmp_path):
    first, second, one = (tmp_path / f"{name}.txt" for name in ("first", "second", "one"))
    first.write_text("# comment\nbad.com\n\n")
    second.write_text("casino\nbad.com\n")
    one.write_text("||Bad.com^\ncasino")
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
