"""Readers' comments: below articles they are dropped or kept, in threads they are the text."""

import re

import pytest

from textmill.pipelines.readers.html_text import Extraction, read_page

ARTICLE = [
    "The library on the corner opens at nine, and children come here after school to read.",
    "In the evening the librarian shuts the windows, turns off the lights and walks home.",
    "Nobody knows who planted the lime tree in the yard, but everyone sits below it in summer.",
    "A second library was opened in the old town in 1988, with a garden and a reading room.",
    "It has forty thousand books, most of them given by people who moved to smaller flats.",
    "On Saturdays a storyteller comes, and then not a single chair is free in the whole house.",
]
COMMENTS = [
    "I learned to read in that library, and the smell of the old shelves is with me still.",
    "Does anyone know whether the reading room is open on holidays? The sign does not say.",
    "My grandmother gave them her novels when she moved, and now I borrow them one by one.",
    "The storyteller is my neighbour! She practises on her balcony every Friday evening.",
    "Great read, thanks. The lime tree was planted by the first librarian, by the way.",
]
LONG = [f"{first} {second}" for first in COMMENTS for second in COMMENTS if first != second]
MENU = "".join(f"<li><a href='/{name}'>{name}</a></li>" for name in ("News", "Sports", "Contact"))
FORM = (
    "<form action='/post'><p>Your email address will not be published. Required fields are marked."
    "</p><textarea></textarea><input type=submit></form>"
)


def paragraphs(sentences):
    return "".join(f"<p>{sentence}</p>" for sentence in sentences)


def site(content, body=""):
    return (
        f"<!doctype html><html><head><title>T</title></head><body class='{body}'><header><nav><ul>"
        f"{MENU}</ul></nav></header><div class=page>{content}</div><footer><p>© 2026 Daily Corner."
        f"</p><ul>{MENU}</ul></footer></body></html>"
    )


def text_of(page, comments, html="main"):
    return read_page(page.encode(), "text/html", Extraction(html, comments)).text


def found(sentences, text):
    """Those of the sentences that are paragraphs or items of the text."""
    lines = [re.sub(r"^\W*(\d+\. )?\W*", "", line) for line in text.splitlines()]
    return [line for line in lines if line in sentences]


def wordpress(comments):
    items = "".join(
        f"<li class='comment even depth-1' id='comment-{n}'><article class='comment-body'>"
        f"<footer class='comment-meta'><b class=fn><a href='/u{n}'>Reader {n}</a></b> "
        f"<a href='#c{n}'><time>March {n + 1}, 2026 at 9:30</time></a></footer>"
        f"<div class='comment-content'><p>{comment}</p></div>"
        f"<div class='reply'><a href='#r{n}'>Reply</a></div></article></li>"
        for n, comment in enumerate(comments)
    )
    return (
        f"<div id='comments' class='comments-area'><h2>{len(comments)} thoughts</h2>"
        f"<ol class='comment-list'>{items}</ol><div id='respond'><h3>Leave a reply</h3>{FORM}"
        "</div></div>"
    )


def disqus(comments):
    """As on servers that write the list into the page; names of classes are few."""
    items = "".join(
        f"<li class='post'><div class='avatar'><a href='/u{n}'>Reader {n}</a></div>"
        f"<div class='post-body'><span class='time'>{n + 1} days ago</span>"
        f"<div class='post-message'><p>{comment}</p></div></div>"
        "<ul class='tools'><li><a href='#'>Share</a></li></ul></li>"
        for n, comment in enumerate(comments)
    )
    return f"<div id='disqus_thread'><ul id='post-list'>{items}</ul></div>"


def substack(comments):
    """Nested: each comment answers the one before."""
    nested = ""
    for n, comment in reversed([*enumerate(comments)]):
        nested = (
            f"<div class='comment'><div class='comment-head'><a href='/u{n}'>Reader {n}</a>"
            f"<a href='#t'>Mar {n + 1}</a></div><div class='comment-body'><p>{comment}</p></div>"
            f"<div class='comment-actions'><a href='#l'>Like ({n})</a> <a href='#r'>Reply</a></div>"
            f"{nested}</div>"
        )
    return (
        "<div class='single-post-section'><div class='container comments-section'><h4>Discussion "
        f"about this post</h4><div class='comment-list'>{nested}</div></div></div>"
    )


def microdata(comments):
    """Names are only in the kinds of items."""
    items = "".join(
        f"<div class='k{n % 2}x'><div itemprop='comment' itemscope itemtype='https://schema.org/"
        f"Comment'><div itemprop='author'>Reader {n}</div><div itemprop='text'><p>{comment}</p>"
        "</div></div></div>"
        for n, comment in enumerate(comments)
    )
    return f"<section itemtype='https://schema.org/UserComments'>{items}</section>"


BODY = f"<article class='post-content'><h1>Two libraries</h1>{paragraphs(ARTICLE)}</article>"
SECTIONS = {f.__name__: f for f in (wordpress, disqus, substack, microdata)}


@pytest.mark.parametrize("html", ["main", "markdown"])
@pytest.mark.parametrize("name", SECTIONS)
def test_comments_below_an_article_are_dropped_or_kept(name, html):
    page = site(BODY + SECTIONS[name](COMMENTS))
    dropped, kept = (text_of(page, comments, html) for comments in ("drop", "keep"))
    article = dropped.removeprefix("# ").removeprefix("Two libraries\n\n")  # if it was chosen
    assert article == "\n\n".join(ARTICLE)
    assert kept.startswith(dropped)
    assert found(ARTICLE + COMMENTS, kept) == ARTICLE + COMMENTS
    assert not any(word in kept for word in ("Reply", "Required", "email", "March", "ago"))


def test_more_comments_than_article():
    page = site(BODY + wordpress(LONG))
    assert found(ARTICLE + LONG, text_of(page, "drop")) == ARTICLE
    assert found(ARTICLE + LONG, text_of(page, "keep")) == ARTICLE + LONG


def post(n, sentence, name="post"):
    return (
        f"<div class='{name}'><div class='author'><a href='/u{n}'>user{n}</a></div>"
        f"<div class='message'><p>{sentence}</p></div>"
        "<div class='tools'><a href='#'>Quote</a></div></div>"
    )


POSTS = [" ".join(ARTICLE), *LONG]
THREADS = {
    "posts": "".join(post(n, text) for n, text in enumerate(POSTS)),
    "comments": f"<div id='comments' class='comments'>{wordpress(POSTS)}</div>",
    "a question with comments": post(0, ARTICLE[0], "question") + wordpress(LONG),
    "replies like the first post": "".join(
        post(n, text, "post comment" if n else "post") for n, text in enumerate(POSTS)
    ),
    "a discussion by its metadata": "<script type='application/ld+json'>{\"@type\": "
    f'"DiscussionForumPosting"}}</script>{BODY}{wordpress(LONG)}',
}


@pytest.mark.parametrize("name", THREADS)
def test_the_posts_of_a_thread_are_its_text(name):
    page = site(THREADS[name])
    dropped, kept = (text_of(page, comments) for comments in ("drop", "keep"))
    assert kept == dropped
    assert found(LONG, dropped) == LONG


@pytest.mark.parametrize(
    "page",
    [
        site(BODY, body="single comments-open has-comments"),
        site(f"<div id='comments' class='site comments-open'>{BODY}</div>"),
        site(f"<article class='post comments-closed tag-comments'>{paragraphs(ARTICLE)}</article>"),
        site(
            f"{paragraphs(ARTICLE[:4])}<section id='comments'>{paragraphs(ARTICLE[4:])}</section>"
        ),
    ],
)
def test_a_name_alone_makes_no_comments(page):
    dropped = text_of(page, "drop")
    assert found(ARTICLE, dropped) == ARTICLE
    assert text_of(page, "keep") == dropped


def test_comments_of_a_page_whose_wrappers_have_such_names():
    content = f"<div class='comments-open'>{BODY}{wordpress(COMMENTS)}</div>"
    page = site(content, body="comments-open")
    assert found(ARTICLE + COMMENTS, text_of(page, "drop")) == ARTICLE
    assert found(ARTICLE + COMMENTS, text_of(page, "keep")) == ARTICLE + COMMENTS


def test_a_wrapper_of_article_and_more_comments_is_no_section():
    lead = f"<h1>Two libraries</h1><p>{COMMENTS[0]}</p>"
    page = site(f"{lead}<div class='comments-open'>{BODY}{wordpress(LONG)}</div>")
    assert found(ARTICLE + LONG, text_of(page, "drop")) == ARTICLE


def test_the_second_half_of_an_article_beside_a_form_is_no_section():
    half = f"{paragraphs(LONG)}{FORM}<div class='comments'>No comments yet.</div>"
    page = site(f"<div>{paragraphs(ARTICLE)}</div><div class='comments-open'>{half}</div>")
    assert found(ARTICLE + LONG, text_of(page, "drop")) == ARTICLE + LONG


def test_replies_without_a_wrapper_to_a_short_question_are_a_thread():
    replies = "".join(
        f"<section id='comment-{n}' class='c{n}'><div class='comment-head'>user{n}</div>"
        f"<div class='comment-body'><p>{text}</p></div></section>"
        for n, text in enumerate(LONG)
    )
    page = site(
        f"<div class='question'><h1>Two libraries</h1>{paragraphs(ARTICLE[:2])}</div>{replies}"
    )
    assert text_of(page, "keep") == text_of(page, "drop")
    assert found(LONG, text_of(page, "drop"))


def test_comments_that_are_left_out_make_no_main_text_short():
    page = site(f"<article>{paragraphs(ARTICLE)}</article>{wordpress(LONG)}").encode()
    shares = [
        read_page(page, "text/html", Extraction("main", comments)).share
        for comments in ("drop", "keep")
    ]
    assert all(share > 0.7 for share in shares)


def test_trafilatura_takes_its_own_comments_and_all_text_has_them():
    page = site(BODY + wordpress(COMMENTS))
    assert COMMENTS[0] not in text_of(page, "drop", "trafilatura")
    assert all(comment in text_of(page, "keep", "trafilatura") for comment in COMMENTS)
    assert text_of(page, "drop", "all") == text_of(page, "keep", "all")
    assert COMMENTS[0] in text_of(page, "drop", "all")
