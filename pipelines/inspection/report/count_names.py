"""Plain names and meanings of all counts of a report. Pure.

`stats.json` and rejects/ have short names (`refuted`, `gopher:min_words`). A page shows the plain
name, and below it the meaning, with the flag that changes a rule. A name that is not here, such as
a value of a user's field, is shown as it is.
"""

import re
from typing import NamedTuple

from textmill.schemas.errors import flag
from textmill.schemas.format.drops import spaced


class CountName(NamedTuple):
    """A count as a reader of a report sees it."""

    title: str
    meaning: str = ""


def name_of_reason(reason: str) -> CountName:
    """The plain name of a reason for which documents are dropped, and its meaning."""
    group, _, rule = reason.partition(":")
    if reason in REASONS:
        return CountName(*REASONS[reason])
    if group in PAPERS and (found := re.fullmatch(r"(max_\w+_)(\d+_gram)s", rule)):
        title, meaning = RULES[f"{found[1]}ngrams"]
        n = found[2].removesuffix("_gram")
        return CountName(
            title.format(n), f"{meaning.format(n)}: {flag(f'{group}_{found[1]}ngrams')}"
        )
    if group in PAPERS and rule in RULES:
        title, meaning = RULES[rule]
        return CountName(title, f"{meaning}: {flag(f'{group}_{rule}')}")
    if group == "filter":
        return CountName(rule, f"by your function: {flag('filter')}")
    return CountName(spaced(reason))


def name_of_section(section: str) -> CountName:
    """The plain name of a section of `observed`, and what its counts are."""
    return CountName(*SECTIONS[section]) if section in SECTIONS else CountName(spaced(section))


def name_of_count(section: str, name: str) -> CountName:
    """The plain name of a count in a section of `observed`, and its meaning."""
    if (section, name) in COUNTS:
        return CountName(*COUNTS[section, name])
    return CountName(name)


EDITED, EDITED_BYTES = "edited", "edited_bytes"  # sections by the rule that edits, in one table

PAPERS = ("gopher", "c4", "fineweb")  # groups whose rules are flags: GROUP_RULE

# Rule of a paper -> title and meaning; in a title, what is wrong with the document.
RULES = {
    "min_words": ("too few words", "minimum number of words, not counting punctuation"),
    "max_words": ("too many words", "maximum number of words, not counting punctuation"),
    "min_word_length": ("short words", "minimum mean length of words, in characters"),
    "max_word_length": ("long words", "maximum mean length of words, in characters"),
    "max_symbols": ("many symbols", "maximum number of #, and of ellipses, per word"),
    "max_bullet_lines": ("bullet lists", "maximum share of lines that start with a bullet"),
    "max_ellipsis_lines": (
        "lines that break off",
        "maximum share of lines that end in an ellipsis",
    ),
    "min_alphabetic": (
        "few letters",
        "minimum share of words (punctuation included) with a letter",
    ),
    "min_stop_words": (
        "few stop words",
        "minimum number of the, be, to, of, and, that, have, with",
    ),
    "max_repeated_paragraphs": (
        "repeated paragraphs",
        "maximum share of paragraphs that repeat an earlier one",
    ),
    "max_repeated_paragraph_chars": (
        "text in repeated paragraphs",
        "maximum share of characters in paragraphs that repeat an earlier one",
    ),
    "max_repeated_lines": ("repeated lines", "maximum share of lines that repeat an earlier one"),
    "max_repeated_line_chars": (
        "text in repeated lines",
        "maximum share of characters in lines that repeat an earlier one",
    ),
    "max_top_ngrams": (
        "one run of {} words",
        "maximum share of characters in the most frequent run of {} words",
    ),
    "max_repeated_ngrams": (
        "repeated runs of {} words",
        "maximum share of characters in repeated runs of {} words",
    ),
    "min_sentences": ("too few sentences", "minimum number of sentences in the remaining lines"),
    "page_phrases": (
        "placeholder text or code",
        "a remaining line has one of these phrases, such as lorem ipsum or a brace",
    ),
    "min_line_ends": ("unfinished lines", "minimum share of lines that end a sentence"),
    "max_short_lines": ("short lines", "maximum share of short lines"),
    "max_newlines": ("many line breaks", "maximum number of newlines per word"),
}

# Reason -> title and meaning.
REASONS = {
    # Corpora
    "duplicates": ("exact duplicates", "the same text as a kept document"),
    "near_duplicates": (
        "near-duplicates",
        f"similar to a kept document, to at least the threshold: {flag('near_duplicates')}",
    ),
    "older_duplicates": (
        "in older corpora",
        f"the same text as a document of an older corpus: {flag('against')}",
    ),
    "duplicate_paragraphs": (
        "only repeated text",
        f"nothing left without duplicate paragraphs or lines: {flag('duplicate_paragraphs')}",
    ),
    "min_chars": ("too few characters", f"minimum number of characters: {flag('min_chars')}"),
    "max_chars": ("too many characters", f"maximum number of characters: {flag('max_chars')}"),
    "min_words": (
        "too few words",
        f"minimum number of words, separated by white space: {flag('min_words')}",
    ),
    "max_repetition": (
        "repetition",
        "maximum share of characters in repeated lines, or in the most frequent pair of words: "
        f"{flag('max_repetition')}",
    ),
    "contaminated": (
        "decontaminated",
        f"has text of an evaluation set: {flag('decontaminate')}",
    ),
    "forgotten": ("forgotten", f"on the list of documents to forget: {flag('forget')}"),
    "not_best": ("not among the best", f"a lower score than the kept share: {flag('keep_best')}"),
    "held_out": ("held out", "the same document is in an evaluation split"),
    "language:other": ("other languages", f"in none of the languages of {flag('language')}"),
    "language:unsure": (
        "uncertain language",
        f"the language is less probable than {flag('language')} requires",
    ),
    "url_blocklist:domain": (
        "listed domain",
        f"the URL has a domain of the list: {flag('url_blocklist')}",
    ),
    "url_blocklist:address": (
        "listed address",
        f"the URL begins with an address of the list: {flag('url_blocklist')}",
    ),
    "url_blocklist:word": (
        "listed word",
        f"the URL has a word of the list: {flag('url_blocklist')}",
    ),
    "respect:tdm": (
        "rights reserved",
        f"the page reserves the rights to text and data mining: {flag('respect')}",
    ),
    "respect:noai": ("no use for AI", f"the page refuses AI for robots: {flag('respect')}"),
    "pii:empty": ("empty", "no text left without personal data"),
    "quality_model:low": (
        "low quality",
        f"a score of the model of quality below {flag('min_quality')}",
    ),
    # Readers
    "not_utf8": ("not UTF-8", "invalid UTF-8"),
    "too_long": ("too long", f"more bytes than {flag('max_document_bytes')}"),
    "broken_json": ("broken JSON", "a line of JSON Lines that is not JSON"),
    "not_an_object": ("no JSON object", "a line of JSON Lines with another value"),
    "lone_surrogate": ("half a surrogate pair", "JSON with an incomplete character"),
    "ragged_row": ("other number of fields", "a CSV record with more or fewer than the header"),
    "missing_field": ("missing field", "a field is missing or null, or a label or id is empty"),
    "not_a_string": ("not a string", "the value has the wrong type"),
    "not_a_label": ("not a label", "the value has the wrong type"),
    "not_an_id": ("not an id", "the value has the wrong type"),
    "not_json": ("not JSON", "the value has the wrong type"),
    "not_answers": ("not answers", "the value has the wrong type"),
    "empty": ("empty", "no text"),
    "http_status": ("other HTTP status", "a response with another status than 200"),
    "not_html": ("not a web page", "images, PDFs, JSON, feeds, and packed or binary bytes"),
    "not_http": ("not HTTP", "a response of another protocol, such as DNS"),
    "html_too_large": ("too many tags", "a page with more than 500,000 tags"),
    "html_too_deep": ("deeply nested page", "elements more than 512 deep"),
    "html_broken": ("broken page", "HTML that the parser does not handle"),
    "page_too_costly": ("costly page", "its conversion takes too much time or memory"),
    # Tasks
    "no_tokens": ("no tokens", "the tokenizer reduces the text to none"),
    "label_outside_classes": ("label outside classes", "a class number without a name"),
    "unknown_label": ("unknown label", f"a label that is not in {flag('classes')}"),
    "answer_not_at_offset": ("answer elsewhere", "the context has another text at its offset"),
    "answer_not_in_context": ("answer not in context", "the context does not contain it"),
    "empty_answer": ("empty answer", "an answer without text"),
    "empty_context": ("empty context", "a context without text"),
    "answer_too_long": ("answer too long", "it does not fit into a row"),
    "sentinel_in_text": ("sentinel in the text", "the text has a sentinel of span corruption"),
    "not_messages": ("not messages", "the field is no list of messages with roles and texts"),
    "not_text": ("not text", "a part of a message is not text, such as an image"),
    "no_content": ("no content", "a message without content and tool calls"),
    "empty_turn": ("empty turn", "an assistant's message without text, tool calls or reasoning"),
    "template_failed": ("template failed", "the chat template raised an error"),
    "unclear_turns": ("unclear turns", "a message cannot be located in the rendered text"),
    "no_end_of_turn": ("no end of turn", "other text than the end of turn follows a turn"),
    "generation_differs": ("other spans", "the template marks other spans as generated"),
    "nothing_to_train_on": ("nothing to train on", "no assistant's message that counts"),
}

# Section of `observed` -> title, and what its counts are.
SECTIONS = {
    "near_duplicates": ("Near-duplicates", "pairs with a common band are candidates"),
    "near_duplicate_clusters": (
        "Clusters of near-duplicates",
        "by number of documents, with the kept one",
    ),
    "language": ("Documents by language", "all that reached the rule"),
    "language_probability": (
        "Documents by probability of their language",
        "all that reached the rule",
    ),
    "documents_with_field": ("Documents with each field", "of the kept documents"),
    "documents_by_year": ("Documents by year", "of the kept documents"),
    "documents_by_license": ("Documents by license", "of the kept documents"),
    "documents_by_robots": ("Documents by directive for robots", "of the kept documents"),
    "documents_by_x_robots_tag": ("Documents by X-Robots-Tag", "of the kept documents"),
    "documents_by_tdm_reservation": (
        "Documents by reservation of text and data mining",
        "of the kept documents",
    ),
    "contaminated": (
        "Decontaminated by evaluation set",
        "documents, or their cut parts, by the first set whose text they have",
    ),
    "evaluation_texts": ("Evaluation texts", f"of {flag('decontaminate')}"),
    EDITED: ("Edits", "kept and dropped documents, by the rule that edits"),
    "pii": ("Personal data replaced", "by kind"),
    "responses": ("Web responses", "of all WARC records"),
    "web_pages": ("Web pages", "read as main text"),
}

# Section of `observed` and name of a count -> title and meaning.
COUNTS = {
    ("near_duplicates", "compared"): ("documents compared", "those with words"),
    ("near_duplicates", "verified"): (
        "verified pairs",
        "candidates whose similarity reaches the threshold",
    ),
    ("near_duplicates", "refuted"): (
        "pairs below the threshold",
        "candidates that are not similar enough",
    ),
    ("near_duplicates", "uncompared"): (
        "skipped comparisons",
        "documents of large buckets, in which others share the band, too",
    ),
    ("near_duplicates", "removed"): ("documents removed", "each for a similar one that is kept"),
    ("near_duplicates", "for_older"): (
        "removed for older corpora",
        "similar to a document of an older corpus",
    ),
    (EDITED, "c4"): ("C4's line rules", f"lines are cut: {flag('quality', 'c4')}"),
    (EDITED, "contaminated"): (
        "decontaminated",
        f"cut parts have text of an evaluation set: {flag('decontaminate')}",
    ),
    (EDITED, "duplicate_paragraphs"): (
        "repeated text",
        f"paragraphs or lines of other documents are cut: {flag('duplicate_paragraphs')}",
    ),
    (EDITED, "pii"): ("personal data", f"it became placeholders: {flag('pii', 'replace')}"),
    ("evaluation_texts", "texts"): ("texts", "different ones"),
    ("evaluation_texts", "too_short"): ("too short", "not searched for"),
    ("evaluation_texts", "common"): ("common language", "not searched for"),
    ("evaluation_texts", "whole"): ("whole texts", "a match must have the whole text"),
    ("responses", "body_cut"): ("cut pages", "the stored body is cut or damaged"),
    ("web_pages", "pages"): ("pages", "those with text"),
    ("web_pages", "short_main_text"): (
        "short main texts",
        "below a tenth of the visible text of the page",
    ),
    ("pii", "email"): ("e-mail addresses", "became <email>"),
    ("pii", "ip"): ("IP addresses", "became <ip>"),
    ("pii", "phone"): ("telephone numbers", "became <phone>"),
    ("documents_by_tdm_reservation", "0"): ("not reserved", "tdm-reservation is 0"),
    ("documents_by_tdm_reservation", "1"): ("reserved", "tdm-reservation is 1"),
}
