"""--decontaminate in whole runs of build_corpus."""

import json
from pathlib import Path

import pytest

from tests.tools.corpus_factory import PHRASE, QUESTIONS, build, hits_of, texts_of, write_lines
from textmill.pipelines import build_shards
from textmill.pipelines.build_corpus import main
from textmill.pipelines.corpus.rules.decontamination import target_files
from textmill.pipelines.inspection.read_rows import read_rows
from textmill.schemas.errors import DataError, UsageError, as_flags
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.records import DOCUMENT_FORMATS

PLAIN = "nothing to be found in here but {} and words"


@pytest.fixture
def questions(tmp_path):
    return write_lines(tmp_path / "questions.jsonl", [{"question": text} for text in QUESTIONS])


@pytest.fixture
def search(tmp_path, questions):
    """Builds a corpus of texts without those that hold a question."""

    def run(name, texts, *flags):
        source = write_lines(tmp_path / "source.jsonl", texts)
        if not any(flag.startswith("--decontaminate=") for flag in flags):
            flags = (f"--decontaminate={questions}", *flags)
        own = ("--num_files=1", "--decontaminate_fields=question")
        return build(source, tmp_path / name, *own, *flags)

    return run


def test_a_run_drops_and_lists_documents_that_hold_a_question_and_can_be_repeated(
    questions, search, tmp_path, capsys
):
    long = "Once upon a time. WHY do rivers, in the far north -- of the country freeze later than"
    texts = [
        PLAIN.format("one"),
        "before\nwhat COLOUR was the horse of the old king of Norway! after",
        "who ate my soup? who knows",
        long + " the LAKES do",
        "how many roads must a man walk",
        PLAIN.format("two"),
    ]
    corpus = search("set", texts)
    said = capsys.readouterr().out
    assert "skipping 1 text with fewer than 5 words" in said
    assert "contaminated 2" in " ".join(said.split())
    assert corpus.stats.dropped == {"contaminated": 2}
    assert corpus.stats.observed == {
        "contaminated": {str(questions): 2},
        "evaluation_texts": {"texts": 4, "too_short": 1},
    }
    assert corpus.stats.total().documents == 4
    found = {hit["record"]: hit for hit in hits_of(corpus)}
    assert {record: hit["overlap"] for record, hit in found.items()} == {
        0: "what COLOUR was the horse of the old king of Norway",
        2: long.removeprefix("Once upon a time. ") + " the LAKES",
    }
    assert (found[2]["found"], found[2]["of"], found[2]["texts"]) == (3, 6, 1)
    assert {hit["path"] for hit in found.values()} == {str(tmp_path / "source.jsonl")}
    [target] = json.loads((tmp_path / "set/decontamination.json").read_text())["targets"]
    assert (target["texts"], target["too_short"], target["common"]) == (4, 1, 0)
    assert corpus.schema.parameters["decontaminate_sha256"] == [target["sha256"]]
    # The file of flags repeats the run anywhere.
    one, again = tmp_path / "set", tmp_path / "again"
    main([f"--config={one / 'config.yaml'}", f"--output={again}"])
    for path in filter(Path.is_file, one.rglob("*")):
        assert (again / path.relative_to(one)).read_bytes() == path.read_bytes(), path
    capsys.readouterr()
    # Targets count by their content, not by their name.
    other = f"--decontaminate={questions.rename(tmp_path / 'other.jsonl')}"
    search("set", texts, other)
    assert "already holds this corpus" in capsys.readouterr().out
    with pytest.raises(UsageError, match="decontaminate_share: stored 0.0, requested 0.9"):
        search("set", texts, other, "--decontaminate_share=0.9")
    write_lines(tmp_path / "other.jsonl", [{"question": text} for text in QUESTIONS[1:]])
    with pytest.raises(UsageError, match="decontaminate_sha256"):
        search("set", texts, other)


@pytest.mark.parametrize(("limit", "dropped"), [(2, 1), (3, 7), (0, 7)])
def test_common_language_does_not_count(search, tmp_path, capsys, limit, dropped):
    targets = write_lines(
        tmp_path / "targets.jsonl", [{"question": text} for text in [*QUESTIONS, PHRASE]]
    )
    common = [f"{n}: {PHRASE.title()}" for n in range(3)]
    texts = [*common, *common, PLAIN.format("one"), QUESTIONS[0]]
    flags = (f"--decontaminate={targets}", f"--decontaminate_max_documents={limit}")
    corpus = search("set", texts, *flags)
    is_common = limit == 2
    due = {"contaminated": dropped} | ({"duplicates": 3} if is_common else {})
    assert corpus.stats.dropped == due
    report = json.loads((tmp_path / "set/decontamination.json").read_text())
    assert report["common_examples"] == [PHRASE] * is_common
    assert report["targets"][0]["common"] == is_common
    assert report["not_searched"] == {"too_short": [QUESTIONS[1]], "common": [PHRASE] * is_common}
    counts = {"texts": 5, "too_short": 1} | ({"common": 1} if is_common else {})
    assert corpus.stats.observed["evaluation_texts"] == counts
    printed = " ".join(capsys.readouterr().out.split())
    assert ("ignoring 1 n-gram found in more than 2 documents" in printed) == is_common
    assert (
        'warning: --decontaminate: 1 of 5 texts is not searched for, such as "Who ate my soup?"; '
        "they have fewer than 5 words (--decontaminate_min_words)" in printed
    )
    assert (
        'warning: --decontaminate: 1 of 5 texts is not searched for, such as "at the end of the '
        'day"; they have few or short words, and are in more than 2 documents: '
        "--decontaminate_max_documents=0 searches for them" in printed
    ) == is_common


@pytest.mark.parametrize("question", [QUESTIONS[3], QUESTIONS[2]], ids=["short", "long"])
@pytest.mark.parametrize("unit", ["document", "line"])
def test_a_question_that_leaked_into_many_pages_is_removed_from_all(
    search, tmp_path, capsys, question, unit
):
    """The long question has n-grams; pages with some of them, also common, are kept."""
    pages = [f"page {n}\n{n} of the quiz: {question.upper()}\nlast {n}" for n in range(20)]
    parts = [f"part {n} {question.rsplit(' ', 1)[0]}" for n in range(20)]
    corpus = search("set", [*pages, *parts], f"--decontaminate_unit={unit}")
    kept = [] if unit == "document" else [f"page {n}\nlast {n}" for n in range(20)]
    assert texts_of(corpus) == sorted([*kept, *parts])
    assert corpus.stats.observed["evaluation_texts"] == {"texts": 4, "too_short": 1, "whole": 1}
    [target] = json.loads((tmp_path / "set/decontamination.json").read_text())["targets"]
    assert (target["whole"], target["common"]) == (1, 0)
    assert "; searching for 1 text without others as a whole" in capsys.readouterr().out
    assert {(hit["found"], hit["of"]) for hit in hits_of(corpus)} == {
        (1, 1) if question == QUESTIONS[3] else (6, 6)
    }


@pytest.mark.parametrize("unit", ["paragraph", "line"])
def test_what_is_found_is_cut_out(search, unit):
    between = "\n\n" if unit == "paragraph" else "\n"
    texts = [
        between.join(["first", f"x {QUESTIONS[0]} y", "last\n"]),
        QUESTIONS[3],
        between.join(["alone", QUESTIONS[3].upper()]),
        PLAIN.format("one"),
    ]
    corpus = search("set", texts, f"--decontaminate_unit={unit}")
    stats = corpus.stats
    assert stats.dropped == {"contaminated": 1}
    assert stats.observed["edited"] == {"contaminated": 2}
    gone = len(f"x {QUESTIONS[0]} y{between}") + len(between + QUESTIONS[3])
    assert stats.observed["edited_bytes"] == {"contaminated": gone}
    left = [f"first{between}last\n", "alone", PLAIN.format("one")]
    assert stats.total().text_bytes == sum(map(len, left))
    assert len(hits_of(corpus)) == 3


@pytest.mark.parametrize(
    "flags",
    [
        ["--static_masking", "--max_length=32"],
        ["--task=tokens", "--file_format=megatron"],
        *(
            pytest.param(["--task=tokens", f"--file_format={name}"], marks=pytest.mark.slow)
            for name in DOCUMENT_FORMATS
            if name != "megatron"
        ),
    ],
    ids=lambda flags: flags[-1],
)
def test_a_dataset_is_a_target(tokenizer_path, tmp_path, flags):
    texts = [f"{number} {PLAIN.format('set')} {number}" for number in range(60)]
    source, first = write_lines(tmp_path / "source.jsonl", texts), tmp_path / "first"
    given = [f"--input={source}", f"--tokenizer={tokenizer_path}", f"--output={first}"]
    build_shards.main([*given, "--splits=train:0.5,test:0.5", *flags])
    made = read_dataset(str(first))
    corpus = build(source, tmp_path / "second", f"--decontaminate={first}")
    in_test = made.stats.split("test").documents
    assert in_test > 0 and corpus.stats.dropped == {"contaminated": in_test}
    assert {hit["field"] for hit in hits_of(corpus)} == {"test"}
    if "--static_masking" in flags:  # and yet the text is known
        [shard, *_] = made.manifest.shards("test", "array_record")
        masked = [rows["masked_weights"] for _, rows in read_rows(made, shard, range(0, 1, 99))]
        assert any(weights.any() for weights in masked)


def test_a_corpus_is_a_target(tmp_path):
    texts = [f"{number} {PLAIN.format('set')} {number}" for number in range(9)]
    source = write_lines(tmp_path / "source.jsonl", texts)
    first = build(write_lines(tmp_path / "a.jsonl", texts[:3]), tmp_path / "a", "--num_files=9")
    corpus = build(source, tmp_path / "b", f"--decontaminate={first.directory}")
    assert texts_of(corpus) == texts[3:]


Q = "--decontaminate={questions}"


@pytest.mark.parametrize(
    ("flags", "error", "said"),
    [
        ("--decontaminate=nowhere.jsonl", DataError, "ate=nowhere.jsonl: no file matches"),
        ("--decontaminate=", UsageError, "--decontaminate=: give a file"),
        ("--decontaminate_ngram=8", UsageError, "=8: it needs decontaminate=FILES_OR"),
        (Q, UsageError, r"no record has text in text \(of SQuAD JSON: question\)"),
        (f"{Q} --decontaminate_fields=a,,b", UsageError, "names separated by commas"),
        (f"{Q} --decontaminate_ngram=65", UsageError, "from 1 to 64"),
        (f"{Q} --decontaminate_ngram=4", UsageError, "min_words=5: give from 1 to 4"),
        (f"{Q} --decontaminate_share=2", UsageError, "from 0 to 1"),
        (f"{Q} --decontaminate_share=-1", UsageError, "from 0 to 1"),
        (f"{Q} --decontaminate_max_documents=-1", UsageError, "at least 0"),
        (f"{Q} --decontaminate_max_documents={10**20}", UsageError, "below 2..63"),
        ("--decontaminate={short}", UsageError, "none of 2 texts has 5 words"),
        ("--decontaminate={empty}", DataError, "is empty: give a file with text"),
        ("--decontaminate={broken}", DataError, "lone_surrogate.*so that its evaluation text is"),
    ],
)
def test_what_cannot_be_a_target_is_refused(flags, error, said, questions, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "one two three four five"}\n{"text": "\\ud800"}\n')
    targets = {
        "questions": questions,
        "short": write_lines(tmp_path / "short.jsonl", ["too few words", "a b c d"]),
        "empty": write_lines(tmp_path / "empty.jsonl", []),
        "broken": broken,
    }
    source = write_lines(tmp_path / "source.jsonl", [PLAIN])
    with pytest.raises(error, match=said):
        build(source, tmp_path / "set", *flags.format(**targets).split())
    assert not (tmp_path / "set/MANIFEST.json").exists()


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path):
    (tmp_path / "sets").mkdir()
    path = write_lines(tmp_path / "sets" / "a.jsonl", [PLAIN])
    (tmp_path / "sets" / "notes.xyz").write_text("notes")
    lines = []
    [file] = target_files((str(tmp_path / "sets"),), lines.append)
    assert file.path == str(path)
    [line] = lines
    assert as_flags(line).startswith("note: --decontaminate: ") and "notes.xyz" in line
