"""train_quality_model: from two inputs and from labels, the same bits, what is refused."""

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import fasttext
import numpy as np
import pytest

import textmill as tm
from tests.tools.corpus_factory import build, rows_of, write_lines
from textmill.pipelines.quality.evaluation import agree, area
from textmill.pipelines.train_quality_model import main
from textmill.schemas.errors import DataError, UsageError, spell

GOOD = [f"a fine and warm film number {n}, which I liked" for n in range(60)]
OTHER = [f"a dull and cold film number {n}, which I left" for n in range(60)]
FAST = ["--buckets=2000", "--dim=4", "--held_out=0.2"]


def train(output: Path, *flags: str) -> dict:
    main([*flags, f"--output={output}", *FAST])
    evaluation = json.loads(Path(f"{output}.json").read_text())
    assert evaluation["model_sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()
    return evaluation


@pytest.fixture
def labelled(tmp_path):
    lines = [{"text": text, "label": 1} for text in GOOD]
    lines += [{"text": text, "label": 0} for text in OTHER]
    return write_lines(tmp_path / "labelled.jsonl", lines)


def by_label(labelled):
    return [f"--input={labelled}", "--label_field=label", "--good_label=1"]


def test_two_inputs_and_labels_give_the_same_model(tmp_path, labelled, capsys):
    good = write_lines(tmp_path / "good.jsonl", reversed(GOOD))
    other = write_lines(tmp_path / "other.jsonl", OTHER)
    corpus = build(other, tmp_path / "corpus").directory
    one = train(tmp_path / "one.bin", *by_label(labelled))
    two = train(tmp_path / "two.bin", f"--good={good}", f"--other={corpus}")
    assert (tmp_path / "one.bin").read_bytes() == (tmp_path / "two.bin").read_bytes()
    assert one == two
    assert one["held_out"]["auc"] == 1.0
    assert one["documents"] + one["held_out"]["documents"] == 120
    assert (
        sum(tenth["documents"] for tenth in one["held_out"]["tenths"])
        == (one["held_out"]["documents"])
    )
    assert "1.0000 on held-out documents" in capsys.readouterr().out


def test_build_corpus_and_fasttext_use_the_model(tmp_path, labelled):
    output = tmp_path / "quality.bin"
    train(output, *by_label(labelled), "--epochs=20")
    unseen = ["a warm film, which I liked, fine", "a cold film, which I left, dull"]
    source = write_lines(tmp_path / "in.jsonl", unseen)
    flags = [f"--quality_model={output}", "--min_quality=0.5"]
    [row] = rows_of(build(source, tmp_path / "corpus", *flags))
    assert row["text"] == unseen[0]
    labels, scores = fasttext.load_model(str(output)).predict(unseen[0])
    assert (labels, scores[0]) == (("__label__good",), pytest.approx(row["quality"], abs=1e-6))


def test_the_function_is_the_command(tmp_path, labelled):
    settings = {"label_field": "label", "good_label": "1", "buckets": 2000, "dim": 4}
    model = tm.train_quality_model(
        input=labelled, output=tmp_path / "one.bin", held_out=0.2, **settings
    )
    evaluation = train(tmp_path / "two.bin", *by_label(labelled))
    assert Path(model).read_bytes() == (tmp_path / "two.bin").read_bytes()
    assert model.evaluation == evaluation and evaluation["held_out"]["auc"] == 1.0
    corpus = tm.build_corpus(
        input=labelled, output=tmp_path / "corpus", quality_model=model, keep_best=0.5
    )
    assert corpus.stats.total().documents == 60
    with pytest.raises(UsageError, match="good_labels=1: did you mean good_label"):
        cast(Any, tm.train_quality_model)(input=labelled, output="x", good_labels=1)
    with pytest.raises(UsageError, match="give overwrite=True to replace it"):
        tm.train_quality_model(input=labelled, output=model, **settings)


def test_equal_documents_count_once_and_contradicted_ones_not(tmp_path, labelled, capsys):
    main([*by_label(labelled), f"--output={tmp_path}/one.bin", *FAST])
    twice = write_lines(tmp_path / "twice.jsonl", [{"text": GOOD[0], "label": 1}] * 2)
    both = write_lines(
        tmp_path / "both.jsonl", [{"text": "on both sides", "label": n} for n in (0, 1)]
    )
    flags = [*by_label(labelled), f"--input={twice}", f"--input={both}"]
    main([*flags, f"--output={tmp_path}/two.bin", *FAST])
    assert Path(tmp_path, "one.bin").read_bytes() == Path(tmp_path, "two.bin").read_bytes()
    shown = capsys.readouterr().out
    assert "124 read" in shown
    assert "duplicates        │ 2" in shown and "with both labels  │ 1" in shown


def test_seeds_and_settings_change_the_model(tmp_path, labelled):
    models = set()
    for number, flags in enumerate([[], ["--seed=1"], ["--maxn=3"], ["--word_ngrams=1"]]):
        train(tmp_path / f"{number}.bin", *by_label(labelled), *flags)
        models.add((tmp_path / f"{number}.bin").read_bytes())
    assert len(models) == 4


def test_agreement_by_hand():
    scores = np.array([0.9, 0.95, 0.2, 0.2, 0.7], np.float32)
    good = np.array([True, True, True, False, False])
    # Pairs of a good and another one: 2 + 2 are right, 0.2 equals 0.2, and 0.2 is below 0.7.
    assert area(scores, good) == pytest.approx(4.5 / 6)
    found = agree(scores, good)
    assert (found.documents, found.good, found.auc, found.accuracy) == (5, 3, 0.75, 0.6)
    assert (found.tenths[2].documents, found.tenths[2].good) == (2, 0.5)
    assert found.calibration_error == pytest.approx((2 * 0.3 + 0.7 + 2 * 0.075) / 5, abs=1e-6)
    assert area(scores, good & False) == 0.5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--good=a"], "give --good and --other, or --input with --label_field and --good_label"),
        (["--good=a", "--other=b", "--input=c"], "give --good and --other, or --input"),
        (["--input=a", "--label_field=label"], "--input needs --good_label"),
        (["--good=a", "--other=b", "--good_label=1"], "--good_label needs --input"),
        (["--good=a", "--other=b", "--minn=2"], "--minn=2: this is above maxn=0"),
        (["--good=a", "--other=b", "--dim=0"], "--dim=0: give 1 to 1,024"),
        (["--good=a", "--other=b", "--held_out=1"], "--held_out=1.0: give a share between 0 and 1"),
        (["--good=a", "--other=b", "--learning_rate=0"], "give a number above 0, to 100"),
    ],
)
def test_impossible_flags_are_refused(flags, message):
    with pytest.raises(UsageError) as caught:
        main([*flags, "--output=x.bin"])
    assert message in spell(str(caught.value))


def test_a_label_that_no_document_has_is_refused(tmp_path, labelled):
    flags = [f"--input={labelled}", "--label_field=label", "--good_label=yes"]
    with pytest.raises(UsageError, match="0 of 120 different documents are good"):
        main([*flags, f"--output={tmp_path}/x.bin"])


def test_a_missing_file_is_of_its_flag(tmp_path):
    (tmp_path / "good.txt").write_text("A good text.")
    flags = [f"--good={tmp_path}/good.txt", "--other=nowhere.txt", f"--output={tmp_path}/x.bin"]
    with pytest.raises(DataError, match=r"^--other=nowhere.txt: no file matches$"):
        main(flags)


def test_a_file_is_not_replaced(tmp_path, labelled):
    (tmp_path / "x.bin").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"x.bin exists"):
        main([*by_label(labelled), f"--output={tmp_path}/x.bin"])
    train(tmp_path / "x.bin", *by_label(labelled), "--overwrite")
