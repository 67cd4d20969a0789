"""The progress of merging."""

import re
import time
from types import SimpleNamespace
from typing import Any

from textmill.pipelines.tokenizer import merging


def test_the_time_left_is_estimated_from_merges_not_from_compiling(monkeypatch, capfd):
    def train(words, options, progress):
        for tokens in (0, 10, 55):  # a compiler, the alphabet, and merges
            progress[0] = tokens
            time.sleep(0.8)
        return words

    monkeypatch.setattr(merging, "_LINE_SECONDS", 0.2)
    monkeypatch.setattr(merging, "load_model", lambda _: SimpleNamespace(train=train))
    options: Any = SimpleNamespace(vocab_size=100, model="bpe")
    words: Any = "words"
    assert merging.merge(options, words) == words
    lines = capfd.readouterr().err
    shown = dict(re.findall(r"train_tokenizer: merging: (\d+) of 100 tokens, (.*)\n", lines))
    assert [*shown] == ["0", "10", "55"]
    assert re.fullmatch(r"\d s", shown["0"]) and re.fullmatch(r"\d s", shown["10"])
    assert re.fullmatch(r"\d s left", shown["55"])
