"""The metrics, messages and files of each task, from outputs made by hand; no framework."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tools.class_factory import class_schema, write_class_set
from tests.tools.clm_factory import chat_schema, clm_schema, write_clm_set
from tests.tools.question_factory import schema_of, write_qa_set
from tests.tools.run_reading import change_flags
from tests.tools.shard_factory import mlm_schema, tokenizer_json
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.tasks.qa import Qa
from textmill.pipelines.tasks.questions import QuestionTemplate
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.statistics import ShardStatistics
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.task_flags import GenerationFlags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.reader import ShardSet
from textmill.trainers.tasks.classification import (
    ClassificationTask,
    count_labels,
)
from textmill.trainers.tasks.language_models import (
    ClmTask,
    MaskRates,
    MlmTask,
    add_up,
    describe_tokens,
    mask_rates,
    shown,
    token_metrics,
    total,
)
from textmill.trainers.tasks.qa import QaTask
from textmill.trainers.tf_classifier import TfClassifierFlags
from textmill.trainers.tf_qa import TfQaFlags

SUMS = {"loss": 6.0, "correct": 2.0, "counted": 4.0}
BATCH = {"segment_ids": np.array([[1, 1, 1, 0], [1, 2, 2, 2]])}


def sums_of(**values):
    return {name: np.array(value, np.float32) for name, value in {**SUMS, **values}.items()}


def measure(task, found) -> dict[str, float]:
    metrics = task.measure(iter(found))
    assert metrics is not None
    return metrics


def test_token_measures_by_hand():
    found = [(BATCH, sums_of()), (BATCH, sums_of(loss=2.0, correct=4.0))]
    sums = add_up(iter(found))
    assert sums == {0: {"loss": 8.0, "correct": 6.0, "counted": 8.0, "tokens": 14.0}}
    assert token_metrics(sums, ()) == {"loss": 1.0, "accuracy": 0.75, "perplexity": math.e}
    assert token_metrics({0: dict(SUMS, counted=0.0)}, ()) is None
    high = {0: {"loss": 1e9, "correct": 0.0, "counted": 1.0}}
    assert token_metrics(high, ()) == {"loss": 1e9, "accuracy": 0.0, "perplexity": math.exp(700)}
    assert shown(1e9 - 0.5, 1) == "999,999,999.5" and shown(1e9, 1) == "1.0e+09"


def test_sums_are_counted_beyond_24_bits():
    many = [(BATCH, sums_of(counted=2.0**24)), *[(BATCH, sums_of(counted=1.0))] * 9]
    assert total(add_up(iter(many)), "counted") == 2**24 + 9
    by_row = {name: np.full(2, value / 2, np.float32) for name, value in SUMS.items()}
    assert add_up(iter([(BATCH, by_row)])) == {0: {**SUMS, "tokens": 7}}, "of each row, or of all"


def test_the_loss_of_each_dataset_of_a_mixture():
    sets = [dict(BATCH, set_index=np.array([index])) for index in (0, 2, 2, 1)]
    sums = [sums_of(), sums_of(loss=3.0), sums_of(loss=4.0), sums_of(loss=0.0, counted=0.0)]
    metrics = token_metrics(add_up(zip(sets, sums, strict=True)), ("books", "code", "web"))
    assert metrics == {
        **{"loss": 13 / 12, "accuracy": 8 / 12, "perplexity": math.exp(13 / 12)},
        **{"loss/books": 1.5, "loss/web": 7 / 8},
    }
    assert metrics is not None
    said = "loss 1.0833 (books 1.5000, web 0.8750), accuracy 66.67%, perplexity 2.95"
    assert describe_tokens(metrics, 2) == said


def test_masked_language_modeling():
    task = MlmTask(make_flags(FlaxMlmFlags, shards="set", best_metric="loss"), mlm_schema())
    metrics = measure(task, [(BATCH, sums_of())])
    assert metrics == {"loss": 1.5, "accuracy": 0.5, "perplexity": math.exp(1.5), "masked": 4.0}
    assert task.describe(metrics) == "loss 1.5000, accuracy 50.00%, perplexity 4.5"
    assert task.measure(iter([(BATCH, sums_of(counted=0.0))])) is None
    assert (task.best_metric, task.counts) == ("loss", "masked")
    assert MlmTask(make_flags(FlaxMlmFlags, shards="set"), mlm_schema()).best_metric is None
    assert task.head_share == 2 / 16, "as many tokens as are masked: 15 % of 16"
    half = make_flags(FlaxMlmFlags, shards="set", masking="dynamic", mask_rate=0.5)
    assert MlmTask(half, mlm_schema()).head_share == 8 / 16
    unread: Any = None
    words = mlm_schema(mask_unit="word")
    [note] = MlmTask(half, words).prepare_training(unread)
    assert note == "dynamic masking masks single tokens; the dataset's own masks are words"
    stored = MlmTask(make_flags(FlaxMlmFlags, shards="set"), words)
    assert stored.prepare_training(unread) == []
    assert MlmTask(half, mlm_schema()).prepare_training(unread) == []


def test_which_masks_a_run_takes():
    """Those of an evaluation are the stored ones in any case, so that runs compare."""
    stored, none = mlm_schema(mask_rate=0.2), mlm_schema(static_masking=False, mask_rate=0.0)

    def rates(schema, **flags):
        return mask_rates(make_flags(FlaxMlmFlags, **flags).task, schema)

    assert rates(stored) == rates(stored, masking="static") == MaskRates(None, None)
    assert rates(stored, masking="dynamic") == MaskRates(0.2, None)
    assert rates(stored, masking="dynamic", mask_rate=0.4) == MaskRates(0.4, None)
    assert rates(none) == rates(none, masking="dynamic") == MaskRates(0.15, 0.15)
    assert rates(none, mask_rate=0.3) == MaskRates(0.3, 0.15)
    with pytest.raises(UsageError, match="--masking=static, but the dataset has no"):
        rates(none, masking="static")
    with pytest.raises(UsageError, match="--mask_rate=0.3 has no effect on the dataset's static m"):
        rates(stored, mask_rate=0.3)
    for rate in (0.0, 1.0, -0.5):
        with pytest.raises(UsageError, match=f"--mask_rate={rate}: must be between 0 and 1"):
            rates(none, mask_rate=rate)
    with pytest.raises(UsageError, match="--patience=2 needs a metric"):
        rates(none, patience=2)
    no_mask = {"special_ids": {"pad": 1, "eos": 2}, "static_masking": False, "mask_rate": 0.0}
    only_special = mlm_schema(all_special_ids=tuple(range(50)))
    for schema in (mlm_schema(**no_mask), only_special):
        with pytest.raises(UsageError, match="has no mask token, or special tokens only"):
            rates(schema, masking="dynamic")
    assert rates(only_special) == MaskRates(None, None)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"samples": 0}, "--samples=0: must be at least 1"),
        ({"max_new_tokens": 0}, "--max_new_tokens=0: must be at least 1"),
        ({"temperature": -0.1}, "--temperature=-0.1: must be 0 .greedy., or at least 1e-30"),
        ({"temperature": math.nan}, "--temperature=nan: must be 0"),
        ({"temperature": 1e-36}, "--temperature=1e-36: must be 0"),
        ({"top_k": -1}, "--top_k=-1: must be at least 0"),
        ({"top_p": 0.0}, "--top_p=0.0: must be above 0 and at most 1"),
        ({"top_p": 1.1}, "--top_p=1.1: must be above 0 and at most 1"),
        ({"samples": 2}, "--samples=2 would be the same text each: give --temperature"),
    ],
)
def test_generation_flags_that_are_refused(values, said):
    with pytest.raises(UsageError, match=said):
        GenerationFlags(**values)


def test_generation_flags_that_are_taken():
    assert GenerationFlags() == GenerationFlags(64, 0.0, 0, 1.0, 1)
    GenerationFlags(max_new_tokens=1, temperature=1e-30, top_k=1, top_p=0.5, samples=2)


def test_causal_language_modeling(tmp_path):
    write_clm_set(tmp_path / "set", validation=1)
    shards = ShardSet(str(tmp_path / "set"))
    task = ClmTask(make_flags(FlaxClmFlags, shards="set"), shards.schema, shards)
    metrics = measure(task, [(BATCH, sums_of())])
    text = shards.stats.split("validation")
    assert text.text_bytes and not text.words
    assert metrics == {
        "loss": 1.5,
        "accuracy": 0.5,
        "perplexity": math.exp(1.5),
        "predicted": 4.0,
        "unpredicted": 3.0,
        # The 7 tokens of BATCH have this share of the split's text.
        "bits_per_byte": 6 / math.log(2) / (text.text_bytes * (7 / text.tokens_in_rows)),
    }
    bits = metrics["bits_per_byte"]
    said = f"loss 1.5000, accuracy 50.00%, perplexity 4.48, {bits:.4f} bits per byte"
    assert task.describe(metrics) == said
    told = task.describe({**metrics, "word_perplexity": 1234.56})
    assert told == f"{said}, perplexity per word 1,234.6"
    vast = {**metrics, "perplexity": math.exp(700), "word_perplexity": 2.5e9}
    told = task.describe(vast)
    assert "perplexity 1.0e+304, " in told and told.endswith("perplexity per word 2.5e+09")
    task._text_of_sets[0] = ShardStatistics(text_bytes=200, words=50, tokens_in_rows=14)
    metrics = measure(task, [(BATCH, sums_of())])  # its 7 tokens are half of the text
    assert metrics["bits_per_byte"] == pytest.approx(6 / math.log(2) / 100)
    assert metrics["word_perplexity"] == pytest.approx(math.exp(6 / 25))
    bare = ClmTask(make_flags(FlaxClmFlags, shards="set"), shards.schema)
    assert "bits_per_byte" not in measure(bare, [(BATCH, sums_of())])


@pytest.fixture
def classes(tmp_path):
    write_class_set(tmp_path / "classes")
    return ShardSet(str(tmp_path / "classes"))


def class_task(shards, **flags):
    given = make_flags(TfClassifierFlags, shards="set", **flags)
    return ClassificationTask(given, class_schema(), shards)


def rows_of(labels, weights):
    return {"label": np.array(labels), "row_weights": np.array(weights, np.uint8)}


def test_classification(classes, tmp_path):
    task = class_task(classes, best_metric="auc")
    assert task.best_metric == "auc"
    broken = measure(task, [(rows_of([0], [1]), {"logits": np.array([[np.nan, 1.0]])})])
    assert math.isnan(broken["loss"]) and task.describe(broken) == "loss nan"
    task.write_files(tmp_path)
    assert not list(tmp_path.glob("*.png")), "of logits that are not numbers there is no plot"
    logits = np.log([[3.0, 1.0], [1.0, 3.0], [1.0, 3.0], [9.0, 1.0]]).astype(np.float32)
    found = [
        (rows_of([0, 1], [1, 1]), {"logits": logits[:2]}),
        (rows_of([0, 0], [1, 0]), {"logits": logits[2:]}),  # the last is a filling row
    ]
    metrics = measure(task, found)
    assert metrics["rows"] == 3 and metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["loss"] == pytest.approx(-np.log([0.75, 0.75, 0.25]).mean())
    said = task.describe(metrics)
    assert said.startswith("loss 0.6539, accuracy 66.67%, AUC 0.7500, F1 0.6667, ECE ")
    task.write_files(tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"confusion.png", "reliability.png"}


def test_weights_of_classes(classes):
    labels = classes.read("train", np.arange(64))["label"]
    counts = np.bincount(labels).tolist()
    assert count_labels(classes, "train") == counts
    task = class_task(classes, class_weights="balanced")
    assert task.weights == [1.0, 1.0], "nothing is weighed where nothing is trained"
    notes = task.prepare_training(classes)
    assert task.weights == [32 / count for count in counts]
    assert notes == [
        f"{name}: {count} training rows, weight {32 / count:.4g}"
        for name, count in zip(("neg", "pos"), counts, strict=True)
    ]
    message = r"--class_weights=1,2,3: 3 weights for 2 classes: give one for each \(classes: "
    with pytest.raises(UsageError, match=message):
        class_task(classes, class_weights="1,2,3").prepare_training(classes)


def test_balanced_weights_follow_the_weights_of_a_mixture(tmp_path):
    """A class that is rare in the rows, but not in the dataset that training reads most."""
    parts = []
    for name, rows in (("many", 64), ("few", 6)):
        write_class_set(tmp_path / name, train=rows)
        parts.append(ShardSet(str(tmp_path / name)))
    shards = ShardSet.mix({f"{tmp_path}/many": 0.1, f"{tmp_path}/few": 0.9})
    task = class_task(shards, class_weights="balanced")
    task.prepare_training(shards)
    many, few = (np.array(count_labels(part, "train")) / part.rows("train") for part in parts)
    assert many[0] != few[0]
    assert task.weights == pytest.approx(1 / (2 * (0.1 * many + 0.9 * few)))


def test_balanced_weights_follow_the_stages_of_a_run(tmp_path):
    """Of 10 steps, 9 read the first dataset and one the second."""
    parts = []
    for name, rows in (("many", 64), ("few", 6)):
        write_class_set(tmp_path / name, train=rows)
        parts.append(ShardSet(str(tmp_path / name)))
    paths, stages = f"{tmp_path}/many,{tmp_path}/few", "0:many=1;90%:few=1"
    given: Any = {"stages": stages, "steps": 10, "batch_size": 8, "class_weights": "balanced"}
    flags = make_flags(TfClassifierFlags, shards=paths, **given)
    shards = flags.open()
    task = ClassificationTask(flags, shards.schema, shards)
    task.prepare_training(shards)
    many, few = (np.array(count_labels(part, "train")) / part.rows("train") for part in parts)
    assert task.weights == pytest.approx(1 / (2 * (0.9 * many + 0.1 * few)))


def test_rows_of_other_classes_do_not_go_with_a_model():
    task, own = class_task(None), class_schema()
    task.check_same_rows("set", own, class_schema())
    for other, said in (
        (class_schema(classes=("pos", "neg")), r"its classes is \['pos', 'neg'\], the model's"),
        (class_schema(vocab_size=60), "its tokenizer is"),
        (class_schema(pairs=True), "its features is .*'token_type_ids'"),
    ):
        with pytest.raises(UsageError, match=f"set does not fit the model: {said}"):
            task.check_same_rows("set", other, own)


QA = Qa(
    qa_template=QuestionTemplate("w5 {question} w6 {context} w7 {answer}"),
    max_question_length=3,
    max_answer_length=4,
)
WORDS = LoadedTokenizer(tokenizer_json(50))
ASKED = [
    ("w10", "w11 w12", [("w12", 4)], "first"),
    ("w13", "w14 w15", [("w14", 0)], "second"),
    ("w16", "w17 w18", [("w18", 4)], "troisième"),
]


@pytest.fixture
def questions(tmp_path):
    write_qa_set(tmp_path / "qa", {"validation": ASKED}, QA, WORDS, 24)
    return ShardSet(str(tmp_path / "qa"))


def answered(shards):
    """The rows in batches of two, and what would be right of the first, wrong of the others."""
    right = {"first": [12, 2], "second": [15, 2], "troisième": []}
    lines = (shards.locate("evaluation.jsonl"),)
    with open(*lines, encoding="utf-8") as file:
        names = {line["example_id"]: line["id"] for line in map(json.loads, file)}
    for batch in shards.sequential_batches("validation", batch_size=2):
        ids, lengths = np.full((2, 4), 49, np.int32), np.zeros(2, np.int32)
        for row, (high, low) in enumerate(batch["example_id"].tolist()):
            answer = right[names[f"{high:08x}{low:08x}"]] if batch["row_weights"][row] else [49] * 4
            ids[row, : len(answer)], lengths[row] = answer, len(answer)
        sums = {name: np.full(2, value, np.float32) for name, value in SUMS.items()}
        yield batch, {**sums, "answer_ids": ids, "answer_lengths": lengths}


def test_question_answering(questions, tmp_path):
    task = QaTask(make_flags(TfQaFlags, shards="set"), questions.schema, questions)
    metrics = measure(task, answered(questions))
    assert metrics == {
        **{"loss": 1.5, "accuracy": 0.5},  # of three rows, without the filling one
        **{"exact": pytest.approx(100 / 3), "f1": pytest.approx(100 / 3), "total": 3},
    }
    assert task.answers == {"first": "w12", "second": "w15", "troisième": ""}
    assert task.describe(metrics) == "loss 1.5000, exact match 33.33, F1 33.33, 3 questions"
    task.write_files(tmp_path)
    lines = (tmp_path / "predictions.json").read_text(encoding="utf-8").splitlines()
    answers = {'"first": "w12"', '"second": "w15"', '"troisième": ""'}
    assert (lines[0], {line.rstrip(",") for line in lines[1:-1]}, lines[-1]) == ("{", answers, "}")
    assert json.loads("".join(lines)) == task.answers
    more = {"step": 10, "loss": 12.25, "exact": 0.0, "f1": 100.0, "total": 3}
    assert task.report(tmp_path, [{"step": 5, **metrics}, more], "a $run") == [
        "step     loss  exact match      F1",
        "   5   1.5000        33.33   33.33",
        "  10  12.2500         0.00  100.00",
    ]
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert task.best_metric == "f1"


def test_a_row_without_a_line_is_named(questions):
    task = QaTask(make_flags(TfQaFlags, shards="set"), questions.schema, questions)
    [(batch, outputs), _] = answered(questions)
    batch["example_id"][0] = 3, 4
    with pytest.raises(DataError, match="no line with the example_id 0000000300000004 of a row"):
        task.measure(iter([(batch, outputs)]))


def test_without_scores_or_questions_the_loss_is_all(questions, tmp_path):
    task = QaTask(make_flags(TfQaFlags, shards="set", score=False), questions.schema, questions)
    assert task.best_metric == "loss"
    assert task.measure(answered(questions)) == {"loss": 1.5, "accuracy": 0.5}
    task.write_files(tmp_path)
    assert task.report(tmp_path, [], "title") == []
    assert not list(tmp_path.glob("*.json"))
    none = make_flags(TfQaFlags, shards="set", score=False, best_metric="none")
    assert QaTask(none, questions.schema, questions).best_metric is None
    train = make_flags(TfQaFlags, shards="set", validation_split="train")
    with pytest.raises(UsageError, match="--validation_split=train: a dataset keeps the questions"):
        QaTask(train, questions.schema, questions)
    assert not QaTask(train, questions.schema).is_scored
    unscored = change_flags(train, score=False)
    assert not QaTask(unscored, questions.schema, questions).is_scored


def test_questions_put_in_another_way_do_not_go_with_a_model(questions):
    task = QaTask(make_flags(TfQaFlags, shards="set"), questions.schema)
    task.check_same_rows("set", questions.schema, questions.schema)
    prefix = schema_of(replace(QA, qa_form="prefix"), WORDS, 24)
    [note] = QaTask(make_flags(TfQaFlags, shards="x"), prefix).export_notes()
    assert "transformers is causal" in note and task.export_notes() == []
    for other, said in (
        (prefix, "its qa_form is 'prefix', the model's is 'causal'"),
        (schema_of(QA, LoadedTokenizer(tokenizer_json(60)), 24), "its tokenizer is"),
    ):
        with pytest.raises(UsageError, match=f"set does not fit the model: {said}"):
            task.check_same_rows("set", other, questions.schema)


def test_a_mixture_has_the_text_of_all_its_sets(tmp_path):
    write_clm_set(tmp_path / "books", validation=4)
    write_clm_set(tmp_path / "web", validation=2)
    both = ShardSet.mix({f"{tmp_path}/books": 1, f"{tmp_path}/web": 1})
    task = ClmTask(make_flags(FlaxClmFlags, shards="set"), clm_schema(), both)
    metrics = measure(task, [(BATCH, sums_of())])
    text = both.parts[0].stats.split("validation")
    share = text.text_bytes * (7 / text.tokens_in_rows)
    assert metrics["bits_per_byte"] == 6 / math.log(2) / share
    # --evaluation_rows takes 7 tokens of each, whatever their sizes: 4 bytes a token, and 1.
    task._text_of_sets = {
        0: ShardStatistics(text_bytes=4000, words=1000, tokens_in_rows=1000),
        1: ShardStatistics(text_bytes=1, words=1, tokens_in_rows=1),
    }
    books, web = ({**BATCH, "set_index": np.full(2, index)} for index in range(2))
    of_both = measure(task, [(books, sums_of()), (web, sums_of())])
    assert of_both["bits_per_byte"] == pytest.approx(12 / math.log(2) / (7 * 4 + 7))
    assert of_both["word_perplexity"] == pytest.approx(math.exp(12 / 14))
    masked = MlmTask(make_flags(FlaxMlmFlags, shards="set"), mlm_schema(), both)
    for one in (metrics, measure(masked, [(BATCH, sums_of())])):
        assert one["loss/books"] == 1.5 and "loss/web" not in one


def test_bits_per_byte_are_not_of_conversations(tmp_path):
    """Whichever set of a mixture comes first."""
    write_clm_set(tmp_path / "texts", validation=2)
    write_clm_set(tmp_path / "chats", validation=2, schema=chat_schema())
    for names in (("texts", "chats"), ("chats", "texts"), ("chats",)):
        shards = ShardSet.mix({f"{tmp_path}/{name}": 1 for name in names})
        task = ClmTask(make_flags(FlaxClmFlags, shards="set"), shards.schema, shards)
        assert "bits_per_byte" not in (measure(task, [(BATCH, sums_of())]) or {"bits_per_byte": 0})
