"""Text of selected blocks by hand, plain and as Markdown."""

import re
import time
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from textmill.pipelines.readers.page_scan import scan
from textmill.pipelines.readers.page_text import page_text

N = 10_000


def text_of(page, *, markdown=False, without=()):
    """The text of a page; `without` has numbers of blocks that are not selected."""
    markup = str(HTMLTree.parse(page)).encode("utf-8", "replace")
    elements, runs, blocks = scan(np.frombuffer(markup, np.uint8))
    selected = ~np.isin(np.arange(blocks), without)
    return page_text(markup, elements, runs, selected, markdown=markdown)


def markdown_of(page):
    return text_of(page, markdown=True)


RECIPE = """
<article><h1>Bread</h1><p>Four things &amp; time.</p>
<h2>Ingredients</h2><ul><li>500&nbsp;g flour<li>350 ml   water
<li>salt</ul><h2>Steps</h2><ol><li>Mix.</li><li>Wait for
an hour.</li><li>Bake.</li></ol></article>
"""


def test_a_recipe():
    assert text_of(RECIPE) == (
        "Bread\n\nFour things & time.\n\nIngredients\n\n• 500 g flour\n• 350 ml water\n• salt\n\n"
        "Steps\n\n1. Mix.\n2. Wait for an hour.\n3. Bake."
    )
    assert markdown_of(RECIPE) == (
        "# Bread\n\nFour things & time.\n\n## Ingredients\n\n- 500 g flour\n- 350 ml water\n- salt"
        "\n\n## Steps\n\n1. Mix.\n2. Wait for an hour.\n3. Bake."
    )


def test_numbers_count_items_that_are_not_selected_and_begin_at_start():
    page = "<ol start=3><li>three<li>four<li>five</ol><ol><li>one</ol>"
    assert text_of(page, without=[1]) == "3. three\n5. five\n\n1. one"


def test_nested_lists():
    page = (
        "<ol><li>one<ul><li>a<li><p>b</p><p>more of b</p></ul></li><li>two<br>lines</li></ol>"
        "<ul><li><ul><li>inner</ul></ul><ul><li><blockquote>said</blockquote></ul>"
    )
    assert text_of(page) == (
        "1. one\n  • a\n  • b\n\n    more of b\n\n2. two\n  lines\n\n  • inner\n\n• said"
    )
    assert markdown_of(page) == (
        "1. one\n   - a\n   - b\n\n     more of b\n\n2. two\n   lines\n\n  - inner\n\n- > said"
    )


def test_lists_of_posts_are_read_as_text():
    page = "<ul><li><h2>First</h2><p>Post.</p></li><li><h2>Second</h2>Post.</li></ul>"
    assert text_of(page) == "First\n\nPost.\n\nSecond\n\nPost."


def test_headings_without_text_are_dropped():
    page = (
        "<h2>Empty</h2><h3>Empty, too</h3><h2>Two<div>parts</div></h2><h3>Sub</h3><p>words</p>"
        "<h2>Last</h2><h3>Of all</h3>"
    )
    assert text_of(page) == "Two parts\n\nSub\n\nwords"
    assert markdown_of(page) == "## Two parts\n\n### Sub\n\nwords"
    assert text_of("<h2>Gone</h2><p>words</p><h2>Other</h2><p>rest</p>", without=[1]) == (
        "Other\n\nrest"
    )


def test_line_ends_paragraphs_and_white_space():
    page = "<p> one <br>\n two\t<b> three</b><br><br>four\u3000five</p>text<div>more</div>after"
    assert text_of(page) == "one\ntwo three\n\nfour\u3000five\n\ntext\n\nmore\n\nafter"


def test_code_keeps_its_lines_and_indentation():
    page = (
        '<p>Run:</p><div class="highlight-python notranslate"><pre><span></span>'
        "<span>  </span><span>def</span> f(x):\n\n      return x &lt; 2 &amp;&amp; 1\n\n"
        "</pre></div>"
    )
    code = "  def f(x):\n\n      return x < 2 && 1"
    assert text_of(page) == f"Run:\n\n{code}"
    assert markdown_of(page) == f"Run:\n\n```python\n{code}\n```"


@pytest.mark.parametrize(
    ("page", "language"),
    [
        ('<pre class="language-rust">x</pre>', "rust"),
        ('<pre><code class="hljs lang-c++">x</code></pre>', "c++"),
        ('<div class="highlight highlight-source-shell"><pre>x</pre></div>', "shell"),
        ('<div class="highlight-default notranslate"><pre>x</pre></div>', ""),
        ("<pre>x</pre>", ""),
    ],
)
def test_the_language_of_code(page, language):
    assert markdown_of(page) == f"```{language}\nx\n```"


def test_lines_of_code_that_are_elements():
    page = "<pre><div>a</div><div><br></div><div>  b</div></pre><pre>c<br>d<br><br> e</pre>"
    assert text_of(page) == "a\n\n  b\n\nc\nd\n\n e"
    page = "<pre><button>Copy</button><table><tr><td>1</td><td>  x = 1</td></tr></table></pre>"
    assert text_of(page, without=[0]) == "  x = 1"


def test_numbers_of_lines_beside_code_are_dropped():
    page = "<table><tr><td><pre>{}</pre></td><td><pre>a\nb</pre></td></tr></table>"
    assert text_of(page.format("9\n10\n")) == "a\nb"
    assert text_of(page.format("9\n11\n")) == "9\n11\n\na\nb"
    assert text_of("<pre>1\n2</pre>") == "1\n2"


def test_code_in_a_list_and_with_fences():
    page = "<ol><li>Write<pre>a:\n\n  - ```b```\n</pre>Then</ol>"
    assert text_of(page) == "1. Write\n\na:\n\n  - ```b```\n\n  Then"
    assert markdown_of(page) == ("1. Write\n\n   ```\n   a:\n\n     - ```b```\n   ```\n\n   Then")
    assert markdown_of("<pre>````\nx\n````</pre>") == "`````\n````\nx\n````\n`````"


TABLE = """
<table><caption>Sizes</caption><thead><tr><th>Size<th>A|B<th colspan=2>Price</thead>
<tr><td>small<td><td>2<br>or 3</tr><tr><td></tr><tr><td>big<td><ul><li>x<li>y</ul><td>5</tr></table>
"""


def test_tables_of_data():
    assert text_of(TABLE) == "Sizes\n\nSize\tA|B\tPrice\nsmall\t\t2 or 3\nbig\tx y\t5"
    assert markdown_of(TABLE) == (
        "Sizes\n\n| Size | A\\|B | Price |\n| --- | --- | --- |\n| small |  | 2 or 3 |\n"
        "| big | x y | 5 |"
    )
    assert text_of("<ul><li>a<table><tr><td>1<td>2</table></ul>") == "• a\n\n1\t2"
    assert markdown_of("<ul><li>a<table><tr><td>1<td>2</table></ul>") == (
        "- a\n\n  | 1 | 2 |\n  | --- | --- |"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<table><tr><td>a<table><tr><td>1<td>2</table><td>b</table>", "a\n\n1\t2\n\nb"),
        ("<table><tr><td><p>a</p><p>b</p><td>c</table>", "a\n\nb\n\nc"),
        ("<table><tr><td>menu<td>a<br><br>b</table>", "menu\n\na\n\nb"),
        ("<table><tr><td>1<td><pre>  x\n y</pre></table>", "1\n\n  x\n y"),
        ("<table><tr><td>a<tr><td>b</table>", "a\n\nb"),
        (
            "<table><tr><td>a<td>b<tr><td>c<td>1<br><br>2<br><br>3<br><br>4</table>",
            "a\n\nb\n\nc\n\n1\n\n2\n\n3\n\n4",
        ),
    ],
)
def test_tables_of_layout_are_read_as_text(page, text):
    assert text_of(page) == text


def test_definitions_and_quotations():
    page = (
        "<dl><dt>Term<dd>Meaning<dd><p>Other</p><p>More</p><dt>Next<dd>Last</dl>"
        "<blockquote><p>One<br>two</p><p>three</p><ul><li>four</ul></blockquote>"
    )
    assert text_of(page) == (
        "Term\nMeaning\nOther\n\nMore\n\nNext\nLast\n\nOne\ntwo\n\nthree\n\n• four"
    )
    assert markdown_of(page) == (
        "Term\n: Meaning\n: Other\n\n  More\n\nNext\n: Last\n\n"
        "> One\n> two\n>\n> three\n>\n> - four"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a <b> bold </b> and <em>so</em>", "a **bold** and *so*"),
        ("<strong>Note:</strong> run <code><a>a</a>.<b>b</b></code>.", "**Note:** run `a.b`."),
        ("x<b>(y)</b>z <i>a*b</i> <b>c</b><b>d</b> <code>`</code>", "x(y)z a*b **c**d `"),
        ("<h2><b>Bold</b> <code>x</code></h2><p>y", "## Bold `x`\n\ny"),
        ("<p><b>one<br>two</b>", "one\ntwo"),
        ("<p>中文<b>粗体</b>中文", "中文**粗体**中文"),
    ],
)
def test_bold_emphasis_and_code_only_where_markdown_reads_them(page, text):
    assert markdown_of(page) == text


def test_signs_of_blocks_are_escaped_at_starts_of_lines():
    page = "<p># a<p>1986. b<p>- c<p>> d<br>---<p>a # b - c 1. d<p>#tag -x 1.5<ul><li>+ e</ul>"
    assert markdown_of(page) == (
        "\\# a\n\n1986\\. b\n\n\\- c\n\n\\> d\n\\---\n\na # b - c 1. d\n\n#tag -x 1.5\n\n- \\+ e"
    )


@pytest.mark.parametrize(
    "formula",
    [
        '<math alttext="a&lt;b"><mi>a</mi><mo>&lt;</mo><mi>b</mi></math>',
        "<math><semantics><mi>a</mi><annotation encoding='application/x-tex'>a&lt;b</annotation>"
        "</semantics></math>",
        '<script type="math/tex"> a<b </script>',
        '<span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>a</mi></mrow>'
        '<annotation encoding="application/x-tex">a&lt;b</annotation></semantics></math></span>'
        '<span class="katex-html" aria-hidden="true"><span>a</span>&lt;b</span></span>',
    ],
)
def test_formulas_are_tex(formula):
    assert text_of(f"<p>If {formula}, stop.</p>") == "If $a<b$, stop."
    assert markdown_of(f"<p>If {formula}, stop.</p>") == "If $a<b$, stop."


def test_formulas_on_their_own():
    page = (
        '<p><script type="math/tex; mode=display">x &amp; y & z</script></p>'
        "<math display=block><annotation encoding='application/x-tex'>x &amp; y</annotation></math>"
    )
    assert text_of(page) == "$$x &amp; y & z$$\n\n$$x & y$$"


@pytest.mark.parametrize(
    "paragraph",
    [
        "שלום עולם, זה עמוד בעברית עם 3 מילים באנגלית: one two.",
        "مرحبا بالعالم، هذه صفحة باللغة العربية (مثال) ٣٤٥.",
        "街角的图书馆每天早上九点开门。",
        "図書館は九時に開きます。子供たちは本を読みます。",
        "ห้องสมุดเปิดเวลาเก้าโมงเช้าทุกวัน",
    ],
)
def test_scripts(paragraph):
    page = f'<html dir="auto"><body><p>{paragraph}</p><ul><li>{paragraph}</ul>'
    assert text_of(page) == f"{paragraph}\n\n• {paragraph}"


def test_entities_comments_and_elements_without_text():
    page = (
        '<p title="a > b">1 &lt; 2 &amp;lt; 3 &quot;q&quot; &#x4e2d;<!-- no <p> --></p>'
        "<script>'<p>no</p>'</script><textarea>no</textarea><P CLASS='x'>un<WBR>closed<p>"
        "a<![CDATA[no]]>b<noscript><p>seen</noscript><select><option>no</select><plaintext>no<p>"
    )
    assert text_of(page) == '1 < 2 &lt; 3 "q" 中\n\nunclosed\n\nab\n\nseen'


@pytest.mark.parametrize("page", ["", "<p></p>", "<p> &nbsp; <br></p>", "<pre>\n \n</pre>"])
def test_pages_without_text(page):
    assert text_of(page) == markdown_of(page) == ""


def test_no_block_is_selected():
    assert text_of("<p>a<p>b", without=[0, 1]) == ""


TAG_NAMES = (
    "p div ul ol li table tr td th h1 h3 pre blockquote dl dt dd b code em a span section br hr"
).split()
TREES = st.recursive(
    st.just("word"),
    lambda inner: st.tuples(st.sampled_from(TAG_NAMES), st.lists(inner, max_size=4)),
    max_leaves=25,
)


def _write(tree):
    if isinstance(tree, str):
        return f" {tree} "
    name, inside = tree
    return f"<{name}>{''.join(map(_write, inside))}</{name}>"


@settings(max_examples=50, deadline=None)
@given(st.lists(TREES, max_size=5), st.booleans())
def test_all_words_of_a_page_are_in_its_text_in_order(trees, markdown):
    numbers = count()
    page = re.sub("word", lambda _: f"word{next(numbers)}", "".join(map(_write, trees)))
    tree = HTMLTree.parse(page)
    found = re.findall(r"word\d+", text_of(page, markdown=markdown))
    assert tree.body
    headings = " ".join(str(heading.text) for heading in tree.body.query_selector_all("h1, h3"))
    assert {*re.findall(r"word\d+", page)} - {*found} <= {*headings.split()}
    assert found == [word for word in re.findall(r"word\d+", str(tree)) if word in {*found}]


HARD = {
    "deep lists": "<ul><li>a" * 100 + "<ul>" + "<li>b<p>c" * N,
    "deep quotations": "<blockquote>a" * 100 + "<p>b<br>c" * N,
    "deep and without text": "<dl><dd>" * 100 + "<p>b</p><dl><dd>" * 100 + "<p>b" * N,
    "lines of code": "<pre>" + "<div>x</div>" * N,
    "pieces of code": "<pre>" + "<b>x</b> " * N,
    "a long heading": "<h1>" + "<div>x</div>" * N + "</h1>text",
    "a long cell": "<table><tr><td>a<td><ul>" + "<li>b" * N,
    "a wide table": "<table><tr>" + "<td>a" * N + "<tr><td>b" * N,
    "breaks": "<p>" + "a<br>" * N,
    "backticks": "<pre>" + "` ` ```" * N,
}


@pytest.mark.parametrize("name", HARD)
def test_the_text_of_a_hard_page_is_short_and_written_in_linear_time(name):
    page = HARD[name]
    began = time.process_time()
    for markdown in (False, True):
        assert 0 < len(text_of(page, markdown=markdown)) < 20 * len(page)
    assert time.process_time() - began < 10  # not minutes
