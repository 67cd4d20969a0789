"""However a corpus is built, its files have the same bytes."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tools.corpus_factory import PHRASE, QUESTIONS, build, hits_of, sums_of, write_lines
from tests.tools.model_files import model_bytes
from tests.tools.near_duplicates import near_documents

SEARCH = ["--num_files=3", "--decontaminate_fields=question", "--decontaminate_max_documents=5"]
RULES = {
    "min_words": ["--keep_fields=n", "--min_words=3", "--num_files=4"],
    "near_duplicates": ["--near_duplicates=jaccard:0.8", "--num_files=70"],  # in rounds
    "duplicate_paragraphs": ["--duplicate_paragraphs=paragraph:2", "--num_files=4"],
    "not_best": ["--near_duplicates=jaccard:0.8", "--keep_best=0.3", "--num_files=4"],
    "older_duplicates": ["--near_duplicates=jaccard:0.8", "--num_files=70"],
    "contaminated": [*SEARCH, "--decontaminate_unit=document"],
    "contaminated lines": [*SEARCH, "--decontaminate_unit=line"],
}
WAYS = {
    "whole": ("whole.jsonl", []),
    "parts": ("parts", ["--shuffle_by=runner"]),
    "table": (
        "table.parquet",
        ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
    ),
    "prism": ("parts", []),  # and the flags of a running one
}


def draw_records():
    """Equal, near and short documents, some with a question, a phrase or a common paragraph."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(1000)]
    texts += near_documents(200)
    for number in range(300):
        words = [str(number), *draw.choices("nothing to be found in here but words".split(), k=40)]
        if number % 12 == 0:
            words.insert(20, QUESTIONS[3 if number % 24 else number // 24 % 3])
        elif number % 6 == 0:
            words.insert(20, PHRASE)
        texts.append(" ".join(words))
        texts.append(f"{number}\n\nShare this page!\n\nthe end of {number}")
    return [{"text": text, "n": draw.randint(0, 9)} for text in texts]


def build_older(tmp_path, records, flags):
    """A corpus of a third of the records, and a delta of another third; their directories."""
    older = []
    for number in range(2):
        source = write_lines(tmp_path / f"older_{number}.jsonl", records[number::3])
        against = [f"--against={one}" for one in older]
        own = [*flags, "--num_files=3", *against]
        older.append(build(source, tmp_path / f"older_{number}", *own).directory)
    return older


QUICK = [(rule, "parts") for rule in RULES]
SLOW = [(rule, way) for rule in RULES for way in ("table", "prism")]


@pytest.mark.parametrize(
    ("rule", "way"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_the_bytes_are_the_same_for_any_files_blocks_workers_and_shuffle(
    tmp_path, rule, way, request
):
    of_prism = request.getfixturevalue("prism") if way == "prism" else []
    records = draw_records()
    write_lines(tmp_path / "whole.jsonl", records)
    random.Random(1).shuffle(records)
    (tmp_path / "parts").mkdir()
    for i in range(5):
        write_lines(tmp_path / f"parts/{i}.jsonl", records[i::5])
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "table.parquet", row_group_size=99)
    targets = [{"question": text} for text in [*QUESTIONS, PHRASE]]
    questions = write_lines(tmp_path / "questions.jsonl", targets)
    (tmp_path / "model.bin").write_bytes(model_bytes(3, labels=3))
    given = {
        "contaminated": f"--decontaminate={questions}",
        "not_best": f"--quality_model={tmp_path}/model.bin",
    }
    if rule == "older_duplicates":
        older = build_older(tmp_path, records, RULES[rule])
        given[rule] = f"--against={','.join(older)}"
    flags = RULES[rule] + [given[name] for name in rule.split()[:1] if name in given]
    made = []
    for one in ("whole", way):
        (source, more), output = WAYS[one], tmp_path / "made" / one
        more = [*more, *of_prism] if one == "prism" else more
        corpus = build(tmp_path / source, output, *flags, *more)
        counts = corpus.stats.dropped | corpus.stats.observed.get("edited", {})
        assert counts[rule.removesuffix(" lines")] > 8
        made.append([sums_of(corpus), counts])
        if rule == "older_duplicates":
            assert corpus.stats.observed["near_duplicates"]["for_older"] > 8
        if "contaminated" in rule:
            made[-1].append((output / "decontamination.json").read_bytes())
            made[-1].append(hits := [{**hit, "path": ""} for hit in hits_of(corpus)])
            # The last question is in more than 5 documents, as the phrase is.
            assert {hit["record"] for hit in hits} == {0, 2, 3}
            counts = corpus.stats.observed["evaluation_texts"]
            assert counts == {"texts": 5, "too_short": 1, "common": 1, "whole": 1}
    assert all(one == made[0] for one in made)
