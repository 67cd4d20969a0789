"""Pages, sources and every --help speak as the glossary of tests/tools/words.py has it.

A finding names the sentence and what to write instead; `python -m tests.tools.words PATH` lists
those of one file.
"""

import re
from pathlib import Path

import pytest

from tests.tools.help_pages import HELPED, help_of
from tests.tools.places import ROOT
from tests.tools.words import PAGES, SOURCES, find_retired, sentences, split_sentences

SHOWN = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
FOLDERS = sorted({path.parent for pattern in SOURCES for path in ROOT.glob(pattern)})


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [name(path) for path in SHOWN])
def test_a_page_has_no_retired_word(page):
    assert [str(f) for sentence in sentences([page]) for f in find_retired(sentence)] == []


@pytest.mark.parametrize("folder", [name(path) for path in FOLDERS])
def test_the_sources_of_a_folder_have_no_retired_word(folder):
    files = [name(path) for path in sorted((ROOT / folder).glob("*.py"))]
    assert [str(f) for sentence in sentences(files) for f in find_retired(sentence)] == []


@pytest.mark.parametrize("command", HELPED, ids=" ".join)
def test_help_has_no_retired_word(command):
    # `  --name=VALUES  Sentences` with deeper lines below: each is a paragraph, without its name.
    text = re.sub(r"^ {2}(?=\S)", "\n", help_of(*command, "--help=all"), flags=re.M)
    text = re.sub(r"^(?:--?\w\S*|[A-Z]+\b)(?:, --?\w\S*)*", "\n", text, flags=re.M)
    found = split_sentences(" ".join(command), 1, text)
    assert [str(f) for sentence in found for f in find_retired(sentence)] == []
