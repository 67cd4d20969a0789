"""report.html in a browser: wide, narrow, light and dark."""

import json
import re

import numpy as np
import pytest

from tests.tools.browser import measure, need_browser
from textmill.pipelines import build_corpus, build_shards

WORDS = "the quick brown fox that is twelve years old does not jump over lazy dogs and has".split()


def _texts():
    random = np.random.default_rng(0)
    for number in range(150):
        words = random.choice(WORDS, random.integers(3, 120)).tolist()
        yield " ".join(words)
        if number % 5 == 0:
            yield " ".join([*words, "again"])
    yield "<script>document.title = 'broken'</script>" + "no-place-to-break-" * 40


@pytest.fixture(scope="module")
def pages(tokenizer_path, tmp_path_factory):
    """The reports of a corpus with near-duplicates, and of its rows for three tasks."""
    need_browser()
    folder = tmp_path_factory.mktemp("browser")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in _texts()))
    cleaning = ["--near_duplicates=jaccard:0.7", "--gopher_min_words=5", "--pii=replace"]
    build_corpus.main([f"--input={folder / 'a.jsonl'}", f"--output={folder / 'corpus'}", *cleaning])
    reports = {"corpus": folder / "corpus/report.html"}
    for task, *flags in (("mlm", "--static_masking"), ("clm",), ("tokens", "--file_format=npy")):
        places = [f"--input={folder / 'corpus'}", f"--output={folder / task}"]
        build_shards.main([f"--task={task}", f"--tokenizer={tokenizer_path}", *places, *flags])
        reports[task] = folder / task / "report.html"
    return reports


def _luminance(color):
    """Of `rgb(27, 36, 48)`, by WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one, other):
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_and_are_legible(pages, dark):
    jobs = {
        f"{name} {width}": (path, width) for name, path in pages.items() for width in (400, 1200)
    }
    found = measure(jobs, dark=dark)
    assert found.pop("console") == []
    for name, page in found.items():
        task, width = name.split()
        assert page["title"].startswith(f"Textmill · {task} · "), "a script of a document ran"
        assert page["width"] <= int(width), f"{name} scrolls sideways"
        wrong = {what: page[what] for what in ("failed", "outside", "flat", "empty")}
        assert wrong == dict.fromkeys(wrong, 0), name
        assert (_luminance(page["paper"]) < 0.1) == dark
        assert _contrast(page["color"], page["paper"]) > 10
        assert _contrast(page["soft"], page["paper"]) > 4.5  # WCAG's AA
