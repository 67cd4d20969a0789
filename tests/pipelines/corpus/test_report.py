"""report.html of a corpus."""

import html
import random
import re

from tests.tools.corpus_factory import build, write_lines


def text_of(page):
    body = page[page.index("<body>") :]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def test_a_report_shows_funnel_samples_hosts_and_clusters(tmp_path):
    rng = random.Random(0)
    records = []
    for i in range(40):
        words = [f"word{rng.randrange(10**6)}" for _ in range(300)]
        for copy in range(1 + 3 * (i == 7)):
            text = " ".join([*words[:150], f"copy{copy}", *words[151:]])
            records.append({"text": text, "url": f"https://host{i % 2}.example/{i}/{copy}"})
    records += [{"text": "too <short>"}, {"text": records[0]["text"]}]
    source = write_lines(tmp_path / "source.jsonl", records)
    source.write_text(source.read_text() + "{broken\n")
    flags = ["--keep_fields=url", "--min_words=5", "--near_duplicates=jaccard:0.8"]
    build(source, tmp_path / "corpus", *flags)
    page = (tmp_path / "corpus/report.html").read_text()
    text = text_of(page)
    assert "could not be written" not in text
    assert "40 of 46 documents kept" in text
    assert "40 of 45 documents were kept: " in text
    assert "too <short>" in text and "<short>" not in page
    assert "host0.example 20" in text and "host1.example 20" in text
    assert "3 removed" in text and "similarity 0.9" in text
    assert "broken json" in text
    assert "--config=DIR/config.yaml --num_files=1" in text
    assert str(tmp_path / "corpus") not in page
