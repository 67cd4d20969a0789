"""--decontaminate in whole runs of build_corpus."""

import json
import random

import pytest

from pipelines import build_shards
from pipelines.build_corpus import main
from pipelines.corpus.metadata import read_corpus
from pipelines.inspection.read_rows import read_rows
from pipelines.runners.launch import find_program
from schemas.errors import DataError, UsageError
from schemas.metadata import read_set
from schemas.records import DOCUMENT_FORMATS

QUESTIONS = [
    "What colour was the horse of the old king of Norway?",
    "Who ate my soup?",
    "Why do rivers in the far north of the country freeze later than the lakes that they leave?",
    "How many roads must a man walk down",
]
PLAIN = "nothing to be found in here but {} and words"


def write_lines(path, texts, field="text"):
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))
    return path


@pytest.fixture
def questions(tmp_path):
    return write_lines(tmp_path / "questions.jsonl", QUESTIONS, "question")


def arguments(source, output, *more):
    return [f"--input={source}", f"--output={output}", "--num_files=1", *more]


def asked(questions, *more):
    return [f"--decontaminate={questions}", "--decontaminate_fields=question", *more]


def hits(output):
    lines = (output / "rejects/contamination.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_document_that_holds_a_question_is_dropped_and_listed(questions, tmp_path, capsys):
    long = "Once upon a time. WHY do rivers, in the far north -- of the country freeze later than"
    texts = [
        PLAIN.format("one"),
        "before\nwhat COLOUR was the horse of the old king of Norway! after",
        "who ate my soup? who knows",
        long + " the LAKES do",
        "how many roads must a man walk",
        PLAIN.format("two"),
    ]
    source = write_lines(tmp_path / "source.jsonl", texts)
    output = tmp_path / "set"
    main(arguments(source, output, *asked(questions)))
    said = capsys.readouterr().out
    assert "skipping 1 text with fewer than 5 words" in said
    assert "contaminated 2" in " ".join(said.split())
    info = read_corpus(str(output))
    assert info.stats.dropped == {"contaminated": 2}
    assert info.stats.observed == {"contaminated": {str(questions): 2}}
    assert info.stats.total().documents == 4
    found = {hit["record"]: hit for hit in hits(output)}
    assert {record: hit["overlap"] for record, hit in found.items()} == {
        0: "what COLOUR was the horse of the old king of Norway",
        2: long.removeprefix("Once upon a time. ") + " the LAKES",
    }
    assert (found[2]["found"], found[2]["of"], found[2]["texts"]) == (3, 6, 1)
    assert {hit["path"] for hit in found.values()} == {str(source)}
    report = json.loads((output / "decontamination.json").read_text())
    [target] = report["targets"]
    assert (target["texts"], target["too_short"], target["common"]) == (4, 1, 0)
    assert info.schema.parameters["decontaminate_sha256"] == [target["sha256"]]
    main(arguments(source, output, *asked(questions)))
    assert "already holds this corpus" in capsys.readouterr().out
    with pytest.raises(UsageError, match="decontaminate_share: stored 0.0, requested 0.9"):
        main(arguments(source, output, *asked(questions, "--decontaminate_share=0.9")))


def test_the_file_of_flags_repeats_the_run_anywhere(questions, tmp_path):
    source = write_lines(tmp_path / "source.jsonl", [PLAIN.format("one"), QUESTIONS[0]])
    one, other = tmp_path / "set", tmp_path / "again"
    main(arguments(source, one, *asked(questions)))
    main([f"--config={one / 'config.yaml'}", f"--output={other}"])
    files = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    assert "decontamination.json" in map(str, files)
    for name in files:
        assert (other / name).read_bytes() == (one / name).read_bytes(), name


def test_targets_count_by_content_and_not_by_name(questions, tmp_path, capsys):
    source = write_lines(tmp_path / "source.jsonl", [PLAIN.format("one")])
    main(arguments(source, tmp_path / "set", *asked(questions)))
    questions.rename(tmp_path / "other.jsonl")
    same = arguments(source, tmp_path / "set", *asked(tmp_path / "other.jsonl"))
    capsys.readouterr()
    main(same)
    assert "already holds this corpus" in capsys.readouterr().out
    write_lines(tmp_path / "other.jsonl", QUESTIONS[1:], "question")
    with pytest.raises(UsageError, match="decontaminate_sha256"):
        main(same)


def test_common_language_does_not_count(questions, tmp_path, capsys):
    common = [f"{n}: {QUESTIONS[3]}" for n in range(3)]
    texts = [*common, *common, PLAIN.format("one"), QUESTIONS[0]]
    source = write_lines(tmp_path / "source.jsonl", texts)
    for limit, dropped in ((2, 1), (3, 7), (0, 7)):
        output = tmp_path / f"set{limit}"
        more = f"--decontaminate_max_documents={limit}"
        main(arguments(source, output, *asked(questions, more)))
        due = {"contaminated": dropped} | ({"duplicates": 3} if limit == 2 else {})
        assert read_corpus(str(output)).stats.dropped == due
        report = json.loads((output / "decontamination.json").read_text())
        assert report["common_examples"] == ([QUESTIONS[3]] if limit == 2 else [])
        assert report["targets"][0]["common"] == (limit == 2)
    said = capsys.readouterr().out
    assert "ignoring 1 n-gram found in more than 2 documents" in said


@pytest.mark.parametrize("unit", ["paragraph", "line"])
def test_what_is_found_is_cut_out(questions, tmp_path, unit):
    between = "\n\n" if unit == "paragraph" else "\n"
    texts = [
        between.join(["first", f"x {QUESTIONS[0]} y", "last\n"]),
        f"{QUESTIONS[3]}",
        between.join(["alone", QUESTIONS[3].upper()]),
        PLAIN.format("one"),
    ]
    source = write_lines(tmp_path / "source.jsonl", texts)
    output = tmp_path / "set"
    more = asked(questions, f"--decontaminate_unit={unit}")
    main(arguments(source, output, *more))
    stats = read_corpus(str(output)).stats
    assert stats.dropped == {"contaminated": 1}
    assert stats.observed["edited"] == {"contaminated": 2}
    gone = len(f"x {QUESTIONS[0]} y{between}") + len(between + QUESTIONS[3])
    assert stats.observed["edited_bytes"] == {"contaminated": gone}
    left = [f"first{between}last\n", "alone", PLAIN.format("one")]
    assert stats.total().text_bytes == sum(map(len, left))
    assert len(hits(output)) == 3


@pytest.mark.parametrize("file_format", DOCUMENT_FORMATS)
def test_a_set_of_whole_documents_is_a_target(tokenizer_path, tmp_path, file_format):
    texts = [f"{number} {PLAIN.format('set')} {number}" for number in range(20)]
    source = write_lines(tmp_path / "source.jsonl", texts)
    first = tmp_path / "first"
    tokens = [f"--input={source}", f"--tokenizer={tokenizer_path}", f"--output={first}"]
    flags = ["--task=tokens", "--splits=train:0.5,test:0.5", f"--file_format={file_format}"]
    build_shards.main([*tokens, *flags])
    output = tmp_path / "second"
    main(arguments(source, output, f"--decontaminate={first}"))
    stats = read_corpus(str(output)).stats
    in_test = read_set(str(first)).stats.split("test").documents
    assert in_test > 0 and stats.dropped == {"contaminated": in_test}


def test_a_set_is_a_target(tokenizer_path, tmp_path):
    texts = [f"{number} {PLAIN.format('set')} {number}" for number in range(60)]
    source = write_lines(tmp_path / "source.jsonl", texts)
    first = tmp_path / "first"
    mlm = [f"--input={source}", f"--tokenizer={tokenizer_path}", f"--output={first}"]
    build_shards.main([*mlm, "--splits=train:0.5,test:0.5", "--static_masking", "--max_length=32"])
    info = read_set(str(first))
    output = tmp_path / "second"
    main(arguments(source, output, f"--decontaminate={first}"))
    stats = read_corpus(str(output)).stats
    assert stats.dropped == {"contaminated": info.stats.split("test").documents}
    assert {hit["field"] for hit in hits(output)} == {"test"}
    rows = [
        rows
        for shard in info.manifest.shards("test", "array_record")
        for _, rows in read_rows(info, shard, range(0, shard.rows or 0, 99))
    ]
    assert any(row["masked_weights"].any() for row in rows)  # and yet the text is known


@pytest.mark.parametrize(
    "flags, error, said",
    [
        (["--decontaminate=nowhere.jsonl"], DataError, "no file matches --decontaminate=nowhere"),
        (["--decontaminate="], UsageError, "--decontaminate is empty"),
        (["--decontaminate_ngram=8"], UsageError, "needs --decontaminate=FILES_OR_DATASETS"),
        (
            ["--decontaminate=Q"],
            UsageError,
            r"no record has text in text \(of SQuAD JSON: question\)",
        ),
        (
            ["--decontaminate=Q", "--decontaminate_fields=a,,b"],
            UsageError,
            "names separated by commas",
        ),
        (["--decontaminate=Q", "--decontaminate_ngram=65"], UsageError, "from 1 to 64"),
        (
            ["--decontaminate=Q", "--decontaminate_ngram=4"],
            UsageError,
            "min_words=5: give from 1 to 4",
        ),
        (["--decontaminate=Q", "--decontaminate_share=2"], UsageError, "a share from 0 to 1"),
        (["--decontaminate=Q", "--decontaminate_max_documents=-1"], UsageError, "at least 0"),
        (["--decontaminate=SHORT"], UsageError, "none of 2 texts has 5 words"),
        (["--decontaminate=EMPTY"], DataError, "is empty: give a file with text"),
        (["--decontaminate=BROKEN"], DataError, "broken_json"),
    ],
)
def test_what_cannot_be_a_target_is_refused(flags, error, said, questions, corpus, tmp_path):
    given = {
        "Q": questions,
        "SHORT": write_lines(tmp_path / "short.jsonl", ["too few words", "a b c d"]),
        "EMPTY": write_lines(tmp_path / "empty.jsonl", []),
        "BROKEN": tmp_path / "broken.jsonl",
    }
    given["BROKEN"].write_text('{"text": "one two three four five"}\n{broken\n')
    head = "--decontaminate="
    flags = [
        head + str(given[name]) if (name := flag.removeprefix(head)) in given else flag
        for flag in flags
    ]
    with pytest.raises(error, match=said):
        main([f"--input={corpus}", f"--output={tmp_path / 'set'}", *flags])
    assert not (tmp_path / "set/MANIFEST.json").exists()


def big_corpus():
    """300 documents in which some questions stand once, and one in more documents than may be."""
    draw = random.Random(0)
    texts = []
    for number in range(300):
        words = [draw.choice(PLAIN.split()) for _ in range(40)]
        if number % 12 == 0:
            words[20:20] = [QUESTIONS[3 if number % 24 else number // 24 % 3]]
        texts.append(" ".join([str(number), *words]))
    return [*texts, *texts[:13]]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["document", "line"])
def test_every_runner_and_cut_gives_the_same_bytes(questions, tmp_path, unit):
    texts = big_corpus()
    source = write_lines(tmp_path / "source.jsonl", texts)
    cut = tmp_path / "parts"
    cut.mkdir()
    for part in range(5):
        write_lines(cut / f"{part}.jsonl", texts[part::5])
    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    ways = {
        "here": [],
        "runner": ["--shuffle_by=runner"],
        "processes": processes,
        "cut": processes,
    }
    try:
        find_program()
        ways["prism"] = ["--runner=PrismRunner"]
    except UsageError:
        pass  # the others are compared all the same
    more = asked(questions, f"--decontaminate_unit={unit}", "--decontaminate_max_documents=5")
    made, listed = {}, {}
    for name, flags in ways.items():
        output = tmp_path / name
        given = cut if name == "cut" else source
        arguments_ = arguments(given, output, *more, *flags)
        main([flag for flag in arguments_ if flag != "--num_files=1"] + ["--num_files=3"])
        files = read_corpus(str(output)).manifest.files
        made[name] = {f.path: f.sha256 for f in files if f.split or f.path == "stats.json"}
        made[name]["report"] = (output / "decontamination.json").read_bytes()
        listed[name] = [{**hit, "path": ""} for hit in hits(output)]
    assert all(files == made["here"] for files in made.values())
    assert all(lines == listed["here"] for lines in listed.values())
    assert len(listed["here"]) == 9  # the third is too short, and the last too common
    assert {hit["record"] for hit in listed["here"]} == {0, 2}
