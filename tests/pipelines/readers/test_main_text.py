"""Main text of whole pages, with the menus, teasers and footers that sites put around it."""

import itertools

import numpy as np
import pytest

from textmill.pipelines.readers.main_text import (
    complete,
    drop_repeats,
    main_text,
    parse_html,
    series_of,
)
from textmill.pipelines.readers.page_scan import scan

SENTENCES = [
    "The library on the corner opens at nine, and children come here after school to read.",
    "In the evening the librarian shuts the windows, turns off the lights and walks home.",
    "Nobody knows who planted the lime tree in the yard, but everyone sits below it in summer.",
    "A second library was opened in the old town in 1988, with a garden and a reading room.",
    "It has forty thousand books, most of them given by people who moved to smaller flats.",
    "On Saturdays a storyteller comes, and then not a single chair is free in the whole house.",
]
BANNER = (
    "<div class='cookie-banner'><p>We use cookies to improve your experience. By continuing you "
    "accept our policy.</p><button>Accept</button></div>"
)
SECTIONS = ("News", "Sports", "Culture", "Travel", "Opinion", "Contact")
MENU = (
    "<header class='site-header'><a href='/'>Daily Corner</a><nav><ul>"
    + "".join(f"<li><a href='/{name}'>{name}</a></li>" for name in SECTIONS)
    + "</ul></nav></header>"
)
TEASERS = (
    "<aside class='sidebar'><h3>Most read</h3><ul>"
    + "".join(f"<li><a href='/{n}'>Headline {n} on something else</a></li>" for n in range(6))
    + "</ul><p>Subscribe to our newsletter and never miss a story.</p></aside>"
)
FOOTER = (
    "<footer class='footer'><p>© 2026 Daily Corner. All rights reserved.</p><ul>"
    "<li><a href='/p'>Privacy policy</a></li><li><a href='/t'>Terms of use</a></li></ul></footer>"
)


def site(content, *, body="", wrapper="wrapper"):
    return (
        f"<!doctype html><html><head><title>T</title></head><body class='{body}'>{BANNER}"
        f"<div class='{wrapper}'>{MENU}<div class='columns'>{content}{TEASERS}</div>{FOOTER}</div>"
        "</body></html>"
    )


def text_of(page, *, markdown=False):
    return main_text(str(parse_html(page)), markdown=markdown)[0]


def paragraphs(sentences):
    return "".join(f"<p>{sentence}</p>" for sentence in sentences)


TEXT = paragraphs(SENTENCES)
NUMBERED = "\n\n".join(f"   {n}. {sentence}" for n, sentence in enumerate(SENTENCES)).lstrip()
RECIPE = (
    "<h2>Ingredients</h2><ul><li>200 g flour</li><li>100 g butter</li><li>1 egg</li></ul>"
    "<h2>Steps</h2><ol><li>Mix the flour with the butter until it looks like sand.</li>"
    "<li>Add the egg, knead it briefly and rest the dough for one hour in the fridge.</li>"
    "<li>Roll it out, cut it and bake it for twenty minutes until it is golden.</li></ol>"
)


@pytest.mark.parametrize(
    "page",
    [
        site(f"<div class='single-post'><div class='newsletter-post post'>{TEXT}</div></div>"),
        site(f"<article class='post category-cookies tag-related-work entry'>{TEXT}</article>"),
        site(f"<article>{TEXT}</article>", wrapper="site footer-fixed"),
        site(f"<article>{TEXT}</article>", body="footer-fixed newsletter popup"),
        site(f"<div id='sidebar-content'>{TEXT}</div>"),
        site(f"<main>{TEXT}</main>", wrapper="has-navigation menu-open"),
        site(f"<table><tr><td class='caption'>{TEXT}</td></tr></table>"),
    ],
)
def test_words_of_classes_do_not_remove_the_text(page):
    assert text_of(page) == "\n\n".join(SENTENCES)


def test_a_recipe_has_its_lists():
    found = text_of(site(f"<article class='category-cookies'>{TEXT}{RECIPE}</article>"))
    assert found == "\n\n".join(SENTENCES) + (
        "\n\nIngredients\n\n• 200 g flour\n• 100 g butter\n• 1 egg\n\nSteps\n\n"
        "1. Mix the flour with the butter until it looks like sand.\n"
        "2. Add the egg, knead it briefly and rest the dough for one hour in the fridge.\n"
        "3. Roll it out, cut it and bake it for twenty minutes until it is golden."
    )


def test_the_posts_of_a_forum_are_its_text():
    posts = "".join(
        f"<div class='post'><div class='author'><a href='/u{n}'>user{n}</a></div>"
        f"<div class='message'><p>{sentence}</p></div>"
        "<div class='tools'><a href='#r'>Reply</a> <a href='#q'>Quote</a></div></div>"
        for n, sentence in enumerate(SENTENCES)
    )
    found = text_of(site(f"<div class='thread'>{posts}</div>"))
    assert [line for line in found.split("\n\n") if line in SENTENCES] == SENTENCES
    assert not any(word in found for word in ("Reply", "Headline", "cookies", "Privacy"))


def test_a_text_that_a_page_repeats_is_written_once():
    posts = "".join(
        f"<div class='post'><blockquote><p>{before}</p></blockquote><p>{sentence}</p></div>"
        for before, sentence in itertools.pairwise(SENTENCES)
    )
    code = (
        "<pre><code>make the_library_on_the_corner_of_the_street_opens_at_nine_oclock</code></pre>"
    )
    page = site(f"<div class='thread'><p>{SENTENCES[0]}</p>{posts}</div>")
    assert text_of(page) == "\n\n".join(SENTENCES)
    found = text_of(site(f"<article>{TEXT}{code}{TEXT}{code}</article>"))
    assert [found.count(sentence) for sentence in SENTENCES] == [1] * len(SENTENCES)
    assert found.count("make the_library") == 2


def test_a_product_has_its_description_and_specifications():
    found = text_of(
        site(
            "<div class='product'><h1>Reading lamp Lux</h1><div class='price'>€ 49.00</div>"
            "<button>Add to cart</button><div class='description'><h2>Description</h2>"
            "<p>A small lamp with a warm light that you can bend in every direction, for long "
            "evenings with a book.</p><h2>Specifications</h2><table><tr><th>Height</th>"
            "<td>40 cm</td></tr><tr><th>Weight</th><td>1.2 kg</td></tr><tr><th>Bulb</th>"
            "<td>LED, 8 W</td></tr></table></div></div>"
        )
    )
    assert "A small lamp with a warm light" in found
    assert "Height\t40 cm\nWeight\t1.2 kg\nBulb\tLED, 8 W" in found
    assert not any(word in found for word in ("Add to cart", "Headline", "cookies"))


def test_documentation_keeps_its_code():
    code = "def f(x):\n    if x &lt; 2:\n        return 1\n\n    return 2"
    table = "<table><tr><th>name</th><th>type</th></tr><tr><td>x</td><td>int</td></tr></table>"
    page = site(
        f"<main><h1>f</h1>{paragraphs(SENTENCES[:2])}<pre><code>{code}</code></pre>"
        f"{paragraphs(SENTENCES[2:4])}<h2>Parameters</h2>{table}{paragraphs(SENTENCES[4:])}</main>"
    )
    plain = code.replace("&lt;", "<")
    assert f"\n\n{plain}\n\n" in text_of(page)
    assert "\n\nname\ttype\nx\tint\n\n" in text_of(page)
    found = text_of(page, markdown=True)
    assert f"\n\n```\n{plain}\n```\n\n" in found
    assert "\n\n## Parameters\n\n| name | type |\n| --- | --- |\n| x | int |\n\n" in found


def test_formulas_are_tex():
    formula = "<script type='math/tex; mode=display'>\\frac{a}{b}</script>"
    page = site(
        f"<article><p>{SENTENCES[0]} Let <math alttext='x^2'><mi>x</mi></math> be it.</p>{formula}"
        f"{paragraphs(SENTENCES[1:])}</article>"
    )
    assert text_of(page) == "\n\n".join(
        (f"{SENTENCES[0]} Let $x^2$ be it.", "$$\\frac{a}{b}$$", *SENTENCES[1:])
    )


@pytest.mark.parametrize(
    "sentences",
    [
        (
            "הספרייה שבפינת הרחוב נפתחת בתשע בבוקר, והילדים באים לכאן אחרי בית הספר כדי לקרוא.",
            "בערב הספרנית סוגרת את החלונות, מכבה את האורות והולכת הביתה ברגל דרך הפארק הישן.",
            "איש אינו יודע מי נטע את העץ בחצר, אבל כולם יושבים תחתיו בקיץ ומדברים על מזג האוויר.",
        ),
        (
            "تفتح المكتبة في زاوية الشارع في التاسعة صباحا، ويأتي الأطفال إليها بعد المدرسة.",
            "في المساء تغلق أمينة المكتبة النوافذ وتطفئ الأنوار وتمشي إلى البيت عبر الحديقة.",
            "لا أحد يعرف من زرع الشجرة في الفناء، لكن الجميع يجلسون تحتها في الصيف ويتحدثون.",
        ),
        (
            "街角的图书馆九点开门，孩子们放学后来这里看书，有时候一直看到天黑才回家。",
            "晚上图书管理员关上窗户，关掉电灯，然后穿过公园慢慢走回家去。",
            "没有人知道院子里的那棵树是谁种的，但是夏天大家都坐在树下聊天。",
        ),
        (
            "角の図書館は九時に開き、子どもたちは放課後ここに来て、暗くなるまで本を読んでいます。",
            "夕方になると司書は窓を閉めて明かりを消し、公園を通ってゆっくりと家に帰ります。",
            "中庭の木を誰が植えたのかは誰も知りませんが、夏にはみんながその下に座って話をします。",
        ),
        (
            "Библиотека на углу открывается в девять, и дети приходят сюда читать после школы.",
            "Вечером библиотекарь закрывает окна, выключает свет и идёт домой через старый парк.",
            "Никто не знает, кто посадил липу во дворе, но летом все сидят под ней и беседуют.",
        ),
        (
            "ห้องสมุดตรงหัวมุมถนนเปิดเก้าโมงเช้า เด็กๆ มาที่นี่หลังเลิกเรียนเพื่ออ่านหนังสือจนค่ำ",
            "ตอนเย็นบรรณารักษ์ปิดหน้าต่าง ปิดไฟ แล้วเดินกลับบ้านผ่านสวนสาธารณะเก่าอย่างช้าๆ",
            "ไม่มีใครรู้ว่าใครปลูกต้นไม้ในสนาม แต่ทุกคนนั่งใต้ต้นไม้ในฤดูร้อนและพูดคุยกัน",
        ),
        (
            "Die Bibliothek an der Ecke öffnet um neun, und die Kinder lesen hier nach der Schule.",
            "Am Abend schließt die Bibliothekarin die Fenster, löscht das Licht und geht heim.",
            "Niemand weiß, wer die Linde im Hof gepflanzt hat, doch im Sommer sitzen alle dort.",
        ),
    ],
    ids=["Hebrew", "Arabic", "Chinese", "Japanese", "Russian", "Thai", "German"],
)
def test_text_of_other_scripts(sentences):
    found = text_of(site(f"<article>{paragraphs(sentences)}</article>"))
    assert found == "\n\n".join(sentences)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<body>" + " ".join(SENTENCES), " ".join(SENTENCES)),
        (f"<body><font face=Arial>{'<br>'.join(SENTENCES)}</font>", "\n".join(SENTENCES)),
        (f"<body><pre>{NUMBERED}</pre>", NUMBERED),
        (f"<body><p>{SENTENCES[0]}</p>", SENTENCES[0]),
    ],
)
def test_a_page_that_is_one_text_is_kept(page, text):
    assert text_of(page) == text


def test_a_page_of_links_or_without_text_has_no_main_text():
    for page in ("", "<body></body>", f"<body>{MENU}</body>"):
        assert text_of(page) == ""


def test_the_share_is_that_of_the_visible_text():
    text, share = main_text(str(parse_html(site(f"<article>{TEXT}</article>"))))
    assert text == "\n\n".join(SENTENCES)
    letters = sum(len(sentence.replace(" ", "")) for sentence in SENTENCES)
    assert 0.5 < share < 1
    assert main_text("<html><body><p>Few words</p></body></html>")[1] == 1
    around = letters / share - letters
    visible = (
        site("").replace("<button>Accept</button>", "").partition("<body")[2].partition(">")[2]
    )
    plain = "".join(parse_html(visible).body.text.split())
    assert around == pytest.approx(len(plain), abs=1)


def test_series_are_lists_and_tables():
    page = (
        "<p>a</p><p>b</p><ul><li>c</li><li><b>d</b></li><li class=x>e</li></ul><ul><li>f</li></ul>"
        "<table><tr><th>g</th><td>h</td></tr><tr><td>i</td></tr></table>"
    )
    markup = np.frombuffer(str(parse_html(page)).encode(), np.uint8)
    elements, runs, count = scan(markup)
    firsts = np.array([runs.elements[np.argmax(runs.blocks == n)] for n in range(count)])
    series = series_of(elements, firsts.astype(np.int32)).tolist()
    names = "abcdefghi"
    groups = sorted(
        "".join(n for n, s in zip(names, series, strict=True) if s == one) for one in {*series}
    )
    assert groups == ["a", "b", "cd", "e", "f", "ghi"]


def test_the_rest_of_a_series_is_chosen_with_most_of_it():
    series, sizes = np.array([0, 0, 0, 1, 1]), np.array([5, 5, 5, 5, 6], np.float32)
    chosen = np.array([True, True, False, True, False])
    assert complete(chosen, series, sizes).tolist() == [True, True, True, True, False]


def test_repeats_of_long_blocks_are_dropped():
    chosen, texts = np.array([0, 1, 1, 1, 1, 1], bool), np.array([3, 3, 3, 1, 0, 0], np.int32)
    is_long = np.array([1, 1, 1, 1, 0, 0], bool)
    kept = drop_repeats(chosen, texts, is_long)
    assert kept.tolist() == [False, True, False, True, True, True]
