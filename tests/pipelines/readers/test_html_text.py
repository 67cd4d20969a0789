"""Web pages: encodings in many languages, what is a page, and pages made to hang a parser."""

import time

import pytest

from pipelines.readers.html_text import (
    HTML,
    UnusablePageError,
    charset_of,
    check_packages,
    codec_of,
    decode_page,
    page_kind,
    read_page,
)
from schemas.errors import UsageError
from tests.tools.read_sources import read_all

TEXTS = {
    "russian": (
        "Библиотека на углу улицы открывается в девять часов утра. Дети приходят сюда после школы, "
        "читают книги о далёких странах и рисуют корабли. Вечером библиотекарь закрывает окна, "
        "выключает свет и идёт домой через парк, где уже желтеют клёны."
    ),
    "ukrainian": (
        "Бібліотека на розі вулиці відчиняється о дев'ятій годині ранку. Діти приходять сюди після "
        "школи, читають книжки про далекі країни й малюють кораблі."
    ),
    "japanese": (
        "図書館は毎朝九時に開きます。子どもたちは学校が終わるとここに来て、遠い国の本を読んだり、"
        "船の絵を描いたりします。夕方になると司書は窓を閉め、明かりを消して、家に帰ります。"
    ),
    "chinese": (
        "街角的图书馆每天早上九点开门。孩子们放学后来到这里，阅读关于遥远国家的书，画着大船。"
        "傍晚时分，图书管理员关上窗户，熄灭电灯，穿过公园走回家去。"
    ),
    "taiwanese": (
        "街角的圖書館每天早上九點開門。孩子們放學後來到這裡，閱讀關於遙遠國家的書，畫著大船。"
        "傍晚時分，圖書館員關上窗戶，熄滅電燈，穿過公園走回家去。"
    ),
    "korean": (
        "길모퉁이의 도서관은 아침 아홉 시에 문을 엽니다. 아이들은 학교가 끝나면 이곳에 와서 "
        "먼 나라에 대한 책을 읽고 배를 그립니다. 저녁이 되면 사서는 창문을 닫고 집으로 돌아갑니다."
    ),
    "greek": (
        "Η βιβλιοθήκη στη γωνία του δρόμου ανοίγει στις εννέα το πρωί. Τα παιδιά έρχονται εδώ μετά "
        "το σχολείο, διαβάζουν βιβλία για μακρινές χώρες και ζωγραφίζουν καράβια."
    ),
    "polish": (
        "Biblioteka na rogu ulicy otwiera się o dziewiątej rano. Dzieci przychodzą tu po szkole, "
        "czytają książki o dalekich krajach i rysują żaglowce, a źdźbła trawy błyszczą."
    ),
    "turkish": (
        "Sokağın köşesindeki kütüphane sabah dokuzda açılır. Çocuklar okuldan sonra buraya gelir, "
        "uzak ülkeler hakkında kitaplar okur ve gemiler çizerler."
    ),
    "hebrew": (
        "הספרייה בפינת הרחוב נפתחת בתשע בבוקר. הילדים באים לכאן אחרי בית הספר, קוראים ספרים על "
        "ארצות רחוקות ומציירים אוניות. בערב הספרן סוגר את החלונות והולך הביתה."
    ),
    "arabic": (
        "تفتح المكتبة في زاوية الشارع في الساعة التاسعة صباحا. يأتي الأطفال إلى هنا بعد المدرسة "
        "ويقرؤون كتبا عن بلدان بعيدة ويرسمون السفن."
    ),
    "thai": "ห้องสมุดที่หัวมุมถนนเปิดตอนเก้าโมงเช้า เด็ก ๆ มาที่นี่หลังเลิกเรียน อ่านหนังสือเกี่ยวกับประเทศที่อยู่ห่างไกล",
    "french": (
        "La bibliothèque au coin de la rue ouvre à neuf heures. Les élèves y viennent après "
        "l'école, lisent des livres sur des pays éloignés et dessinent des bateaux à voiles."
    ),
}
CODECS = {
    "russian": "windows-1251 koi8-r iso-8859-5 utf-16-le utf-16-be",
    "ukrainian": "windows-1251 koi8-u",
    "japanese": "shift_jis euc-jp iso-2022-jp utf-16-le",
    "chinese": "gb18030 gbk gb2312",
    "taiwanese": "big5",
    "korean": "euc-kr",
    "greek": "iso-8859-7 windows-1253",
    "polish": "iso-8859-2 windows-1250",
    "turkish": "iso-8859-9 windows-1254",
    "hebrew": "windows-1255 iso-8859-8",
    "arabic": "windows-1256 iso-8859-6",
    "thai": "tis-620 cp874",
    "french": "iso-8859-1 windows-1252 iso-8859-15",
}
# Latin letters that servers and pages declare to be others: then a browser shows others too.
CANNOT_BE_TOLD = {"polish", "turkish"}
CASES = [(name, codec) for name in TEXTS for codec in (*CODECS[name].split(), "utf-8")]


def page(text, codec, meta=""):
    element = f'<meta charset="{meta}">' if meta else ""
    return f"<html><head>{element}<title>x</title></head><body><p>{text}</p></body>".encode(codec)


@pytest.mark.parametrize(("language", "codec"), CASES)
def test_a_page_is_decoded_by_what_is_true_of_it(language, codec):
    """Whatever the header and the page declare: nothing, the truth, or a server's default."""
    text = TEXTS[language]
    for meta in ("", codec, "utf-8", "iso-8859-1", "no-such-encoding"):
        for header in ("", codec, "UTF-8", "ISO-8859-1", "hex"):
            wrong = "iso-8859-1" in (meta, header.lower())
            if language in CANNOT_BE_TOLD and codec != "utf-8" and wrong:
                continue
            assert text in decode_page(page(text, codec, meta), header), (meta, header)


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_goes_before_all(codec):
    data = "\ufeff".encode(codec) + page("zażółć", codec, meta="koi8-r")
    found = decode_page(data, "windows-1251")
    assert found.startswith("<html>") and "zażółć" in found


def test_a_cut_or_stray_byte_does_not_make_utf_8_another_encoding():
    text = TEXTS["russian"]
    cut = page(text, "utf-8")[: -len("ы.</p></body>") - 2]
    assert decode_page(cut).endswith("клё\ufffd")
    stray = page(text, "utf-8").replace("улицы".encode(), b"\xff\xfe ")
    assert text.replace("улицы", "\ufffd\ufffd ") in decode_page(stray, "iso-8859-1")


def test_names_of_encodings_and_charsets_of_headers():
    names = ("latin1", "x-sjis", "ms949", "GB2312", "x-mac-cyrillic", "utf16", "", "no-such", "\0")
    assert [codec_of(name) for name in names] == [
        *("cp1252", "cp932", "cp949", "gb18030", "mac-cyrillic", "utf-16", "", "", "")
    ]
    for label in ("idna", "punycode", "undefined", "rot13", "utf-7", "unicode_escape"):
        assert codec_of(label) == ""  # a codec of Python that is no encoding of the web
        assert "\\u0041 +AGE- é" in decode_page("<p>\\u0041 +AGE- é".encode("latin-1"), label)
    assert charset_of('text/html; Charset="UTF-8"') == "UTF-8"
    assert charset_of("text/html;charset = koi8-r; x=y") == "koi8-r"
    assert charset_of("text/html") == ""


@pytest.mark.parametrize(
    ("data", "declared", "kind"),
    [
        (b"<p>x", "text/html", "html"),
        (b"plain words", "text/html; charset=utf-8", "html"),
        (b"", "TEXT/HTML", "html"),
        (b"\xef\xbb\xbf <!-- x --> <!DocType HTML>", "", "html"),
        (b'<?xml version="1.0"?>\n<html xmlns="x">', "application/xml", "html"),
        ("<html><p>wide".encode("utf-16"), "", "html"),
        (b"<html>", "text/plain", "html"),
        (b"words", "text/plain", "text"),
        (b"words", "", ""),
        (b"words", "application/octet-stream", ""),
        (b"<html>", "application/json", ""),
        (b'[{"a": 1}]', "text/html", ""),
        (b"{ x }", "text/html", "html"),
        (b"GIF89a...", "text/html", ""),
        (b"a\0\0b\0\0c\0\0", "text/html", ""),
        (b'<?xml version="1.0"?><rss>', "text/html", ""),
        (b'<svg xmlns="x">', "text/html", ""),
    ],
)
def test_the_first_bytes_tell_a_page_where_the_header_does_not(data, declared, kind):
    assert page_kind(data, declared) == kind


def test_text_title_and_url_of_a_page():
    data = (
        b"<html><head><title> A\n title &amp; more</title><link rel=canonical href='https://a/b'>"
        b"<style>p {color: red}</style></head><body><script>var x = '<p>no</p>'</script>"
        b"<h1>Head</h1><p>One&nbsp;two &#55296; \0 three<br>four</p><!-- no --></body></html>"
    )
    found = read_page(data, "text/html", "all")
    assert (found.title, found.url) == ("A title & more", "https://a/b")
    assert "Head" in found.text and "four" in found.text
    assert not any(word in found.text for word in ("color", "var x", "no", "\0"))
    found.text.encode()


@pytest.mark.parametrize("html", HTML)
def test_every_way_gives_the_main_text(html):
    words = "".join(
        f"<p>Paragraph {n} tells of a library on the corner, of its books and of the children who "
        "come here after school to read about countries far away.</p>"
        for n in range(6)
    )
    data = f"<body><nav><a href=/>Home</a></nav><article><h1>A library</h1>{words}</article>"
    found = read_page(data.encode(), "text/html", html).text
    assert all(f"Paragraph {n} tells" in found for n in range(6))
    assert ("Home" in found) == (html == "all")


N = 100_000
HARD = {
    "deep div": "<div>" * N,
    "deep and closed": "<div>" * N + "x" + "</div>" * N,
    "deep bold": "<b><div>" * N,
    "deep lists": "<ul><li>" * N,
    "deep tables": "<table><tr><td>" * N,
    "deep links": "<a href=x>" * N,
    "deep fonts": "<font size=1><p>" * N,
    "misnested": "<b><p></b>" * N,
    "attributes": "<p " + " ".join(f"a{n}=1" for n in range(N)) + ">x",
    "quoted attributes": "<p " + " ".join(f"a{n}='<>'" for n in range(N)) + ">x",
    "slashes": "<p/" + "/".join(f"a{n}" for n in range(N)) + ">x",
    "open tags": "<" * N,
    "many tags": "<p>x" * 10 * N,
    "open comments": "<!--" * N,
    "NULs": "<p>" + "\0" * N + "x",
    "entities": "&amp;" * N + "&#x110000;" * N,
    "an open quote": "<p title='" * N,
    "brackets": "<![CDATA[" * N,
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("html", ["main", "all"])
def test_a_hard_page_neither_hangs_nor_ends_the_process(name, html):
    began = time.process_time()
    try:
        read_page(b"<html><body>" + HARD[name].encode() + b" words", "text/html", html)
    except UnusablePageError as error:
        assert error.reason in ("html_too_deep", "html_too_large", "html_broken", "not_html")
    assert time.process_time() - began < 20  # not minutes


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"need the package resiliparse: pip .*textmill\[web\]"):
        check_packages("main")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "resiliparse" or None)
    with pytest.raises(UsageError, match=r"need the package trafilatura: .*\[trafilatura\]"):
        check_packages("trafilatura")


def test_a_file_is_a_page(tmp_path):
    for name in ("a.html", "b.htm", "c.xhtml"):
        (tmp_path / name).write_text(f"<p>page {name}")
    (tmp_path / "d.html").write_bytes(b"%PDF-1.7")
    (tmp_path / "e.html").write_text("<p>" + "long " * 1000)
    (tmp_path / "f.html").write_text("<p></p>")
    [docs] = read_all(tmp_path, html="all", max_document_bytes=1000)
    assert docs.text.to_pylist() == ["page a.html", "page b.htm", "page c.xhtml"]
    assert docs.unusable == {"not_html": 1}
    assert [(reject.reason, reject.path) for reject in docs.rejects] == [
        ("too_long", str(tmp_path / "e.html"))
    ]
    assert (docs.empty, docs.read, len(docs.digests)) == (1, 6, 6)
    with pytest.raises(UsageError, match=r"a\.html holds web pages .*build_corpus"):
        read_all(tmp_path / "a.html", html="")
