"""Main text by hand: what of a page is its text, and how its blocks are written."""

from resiliparse.parse.html import HTMLTree

from pipelines.readers.main_text import main_text

LONG = "The library on the corner opens at nine, and children come here after school to read."
MORE = "In the evening the librarian shuts the windows, turns off the lights and walks home."


def text_of(body):
    markup = f"<html><body class=x>{body}</body></html>"
    return main_text(markup, HTMLTree.parse(markup))


def article(*blocks):
    return text_of(f"<article>{''.join(blocks)}</article>").split("\n\n")


def p(text):
    return f"<p>{text}</p>"


def test_text_is_without_headline_byline_date_and_what_follows():
    assert article(
        "<h1>A library</h1>",
        "<div>By Ann Reader</div><div>12 May 2024</div>",
        p(LONG),
        "<h2>Evenings</h2>",
        p(MORE),
        p("Good night."),
        "<h3>Read also</h3>",
        p('<a href="/1">Ten more libraries that you should see</a>'),
        "<div>Share this</div>",
    ) == [LONG, "Evenings", MORE, "Good night."]


def test_the_heading_above_the_text_stays_and_so_does_a_deck():
    deck = "How a library serves the children on a street corner where no other place is open"
    blocks = ("<h1>A library</h1>", f"<h2>{deck}</h2>", "<h3>Mornings</h3>", p(LONG), p(MORE))
    assert article(*blocks) == [deck, "Mornings", LONG, MORE]


def test_blocks_of_links_and_fragments_between_paragraphs_go():
    teaser = p('More: <a href="/2">The opening of a second library in the old town</a>')
    photo = "<div>Photo: Ann Reader</div>"
    caption = '<div class="Img-Caption">A long caption of a picture that shows the library.</div>'
    assert article(p(LONG), teaser, photo, caption, p(MORE)) == [LONG, MORE]


def test_links_inside_text_and_characters_are_those_of_the_page():
    linked = LONG.replace("library", '<a href="/a?x=1&amp;y=2>">library</a>')
    escaped = "1 &lt; 2 &amp;&amp; 3 &amp;lt; 4 &quot;q&quot; "
    assert article(p(escaped + linked), p(MORE)) == [f'1 < 2 && 3 &lt; 4 "q" {LONG}', MORE]


def test_lists_have_marks_and_tables_have_rows():
    found = text_of(
        f"<article>{p(LONG)}<ul><li>flour for the bread</li><li>water of the well</li></ul>"
        f"<ol><li>Mix both well.</li><li>Wait for an hour.</li></ol>"
        f"<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>{p(MORE)}"
        "</article>"
    )
    assert "• flour for the bread\n• water of the well" in found
    assert "1. Mix both well.\n2. Wait for an hour." in found
    assert "a\t\tb\nc\t\td" in found


def test_lists_of_a_page_without_levels_stay():
    blocks = f"{p(LONG)}<ul><li>flour</li><li>water</li></ul>{p(MORE)}"
    due = f"{LONG}\n\n• flour\n• water\n\n{MORE}"
    assert text_of(blocks) == text_of(f"<main>{blocks}</main>") == due
    assert main_text(blocks, HTMLTree.parse(blocks)) == due  # without a body's tag


def test_preformatted_text_keeps_its_lines():
    code = "def f(x):\n    return x &lt; 2\n\n\nprint(f(1))"
    found = text_of(f"<article>{p(LONG)}<pre>{code}</pre>{p(MORE)}</article>")
    assert "def f(x):\n    return x < 2\n\n\nprint(f(1))" in found


def test_pages_of_short_lines_and_of_nothing():
    assert text_of("<p>one</p><p>two</p>").split() == ["one", "two"]
    for body in ("", "<p></p>", "<p> &nbsp; </p>", "<script>x</script>"):
        assert text_of(body) == ""


def test_a_page_in_chinese_is_text_by_its_bytes():
    text = "街角的图书馆每天早上九点开门。孩子们放学后来到这里，阅读关于遥远国家的书。"
    assert article("<h1>图书馆</h1>", "<div>记者</div>", p(text), p(text)) == [text, text]
