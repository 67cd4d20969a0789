"""Encodings of web pages: in many languages, declared, undeclared and wrongly declared."""

import time

import pytest

from textmill.pipelines.readers.page_encoding import charset_of, codec_of, decode_page

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
        assert codec_of(label) == ""  # a codec of Python that is not an encoding of the web
        assert "\\u0041 +AGE- é" in decode_page("<p>\\u0041 +AGE- é".encode("latin-1"), label)
    assert charset_of('text/html; Charset="UTF-8"') == "UTF-8"
    assert charset_of("text/html;charset = koi8-r; x=y") == "koi8-r"
    assert charset_of("text/html") == ""


SENTENCES = (
    "A vote is underway. {0}I like his kind of person, she said of the mayor of the city.",
    "The branch office of Jehovah{0}s Witnesses in Nigeria has confirmed the reports.",
    "The price of it was {0}5 when the shop opened at nine in the morning on Monday.",
    "They went to see Andr{0} in the old town, and then they took the last train home.",
    "{0} First of all, a line of a list that has several words, none of them of interest.",
)
TYPOGRAPHY = "‘’“”–—…•€™œŒžŠ©®°±£¥§«»½×éèêëàâáäãåæçïîíñóòôöõøúùûüßÉÅÇÖØÜ¡¿\xa0"


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_page_in_english_is_in_windows_1252(sentence):
    """Statistics of one or two bytes beyond ASCII choose a code page of DOS or of the Baltic."""
    for sign in TYPOGRAPHY:
        for text in (sentence.format(sign), f"{sentence} {sentence}".format(sign)):
            assert text in decode_page(page(text, "cp1252")), sign


FEW = (
    "It’s the town’s oldest bridge, “and the people’s favourite” – he said.",
    "Claude-Pierre Pecaudy de Contrecœur went to relieve Saint-Pierre.",
    "Señor Núñez and Zoë Brontë ate crème brûlée at the Ångström café in São Paulo.",
    "Il n’a pas été à l’œuvre, où ça ?",
    "Å, Ä, Ö and æ, ø, å are letters; ÄÖÜäöüß are, too.",
    "———————\xa0\xa0\xa0\xa0\xa0 a menu \xa0\xa0\xa0\xa0 •••••••",
    "Café",
    "¿Qué?",
    "Øre",
)


@pytest.mark.parametrize("text", FEW)
def test_a_few_letters_of_europe_are_in_windows_1252(text):
    assert text in decode_page(page(text, "cp1252"))


OTHER_SCRIPTS = sorted({*TEXTS} - {"polish", "turkish", "french"})


@pytest.mark.parametrize("language", OTHER_SCRIPTS)
@pytest.mark.parametrize("size", [20, 60])
def test_a_short_undeclared_page_in_another_script_is_found(language, size):
    text = TEXTS[language][:size]
    for codec in CODECS[language].split():
        assert text in decode_page(page(text, codec)), codec


def test_scripts_do_not_hide_the_language_of_a_page():
    code = "<script>" + "var letters = anything + 'else';" * 500 + "</script>"
    for language, codec in (("polish", "iso-8859-2"), ("russian", "koi8-r"), ("greek", "cp1253")):
        data = page(TEXTS[language], codec).replace(b"<body>", b"<body>" + code.encode())
        assert TEXTS[language] in decode_page(data)


def test_quotes_of_windows_are_no_control_characters():
    greek = TEXTS["greek"].replace("πρωί", "“πρωί”")
    assert greek in decode_page(page(greek, "cp1253"))
    polish = TEXTS["polish"].replace("dalekich", "„dalekich”")
    assert polish in decode_page(page(polish, "cp1250"))


@pytest.mark.parametrize(
    ("language", "codec", "declared"),
    [
        ("russian", "koi8-r", "euc-kr"),
        ("russian", "windows-1251", "big5"),
        ("japanese", "shift_jis", "big5"),
        ("chinese", "gb18030", "iso-8859-8"),
        ("hebrew", "windows-1255", "gb2312"),
    ],
)
def test_a_declaration_that_the_bytes_contradict_does_not_count(language, codec, declared):
    text = TEXTS[language]
    assert text in decode_page(page(text, codec), declared)
    assert text in decode_page(page(text, codec, meta=declared))
    assert text in decode_page(page(text, codec, meta=codec), declared)


KOI8 = b"caf\xe9 ol\xe9"
DECLARATIONS = {  # before a text -> whether it declares that it is in KOI8-R
    b"<meta charset=koi8-r>": True,
    b"<META CHARSET = 'KOI8-R' >": True,
    b'<meta\ncharset="koi8-r"/>': True,
    b"<meta/charset=koi8-r>": True,
    b'<meta http-equiv=Content-Type content="text/html; charset=koi8-r">': True,
    b'<meta content="text/html;charset=\'koi8-r\'" http-equiv="content-type">': True,
    b"<meta name=description content='a > b'><meta charset=koi8-r>": True,
    b"<meta charset=none><meta charset=koi8-r>": True,
    b"<!-- > <meta charset=utf-8> --><meta charset=koi8-r>": True,
    b"<!--><meta charset=koi8-r>": True,
    b"<?xml version='1.0' encoding='koi8-r'?>": True,
    b"<title>a < b</title><meta charset=koi8-r>": True,
    b"<meta name=keywords content='charset=koi8-r'>": False,
    b"<!-- <meta charset=koi8-r> -->": False,
    b"<metal charset=koi8-r>": False,
    b"<meta data-charset=koi8-r>": False,
    b"<meta charset=iso-8859-1 charset=koi8-r>": False,
    b"<p>" + b"x" * (1 << 14) + b"<meta charset=koi8-r>": False,
}


@pytest.mark.parametrize("markup", DECLARATIONS)
def test_declarations_in_a_page_are_found_as_in_browsers(markup):
    expected = KOI8.decode("koi8-r" if DECLARATIONS[markup] else "cp1252")
    assert decode_page(markup + KOI8).removeprefix(markup.decode()) == expected


PUMPED = [
    *("charset", "charset ", "charset=", "charset= ", "charset='", "charset=' ", " ", "=", "c"),
    *("<meta ", "<meta", "<meta charset", "<meta charset=", "<meta charset= ", "<meta a='", "<"),
    *("<meta a=\"'", "<!--", "<!-- --", "<?xml ", "<?xml encoding = ", "<meta/", "<meta a=", "-"),
    *("<meta http-equiv=content-type content='", "<script>", "<script", "<style></", "</script"),
    *("\x1b$", "\xe9", "\xe9\xe8 ", "\x92s ", "\xa0"),
]


@pytest.mark.parametrize("piece", PUMPED)
def test_encodings_are_found_in_linear_time(piece):
    for text in (piece * (60_000 // len(piece)), "charset=" + piece * (60_000 // len(piece))):
        began = time.process_time()
        charset_of(text)
        assert time.process_time() - began < 0.5
    for before in ("<p>é", "<meta charset=", "<meta content='charset="):
        text = before + piece * (1_000_000 // len(piece))
        began = time.process_time()
        decode_page(text.encode("latin-1"))
        assert time.process_time() - began < 2  # not minutes
