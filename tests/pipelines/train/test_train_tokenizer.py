"""train_tokenizer, whole: files in, tokenizer out, `tokenizers`' own training as the oracle."""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from filelock import FileLock
from tokenizers import (
    ByteLevelBPETokenizer,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from pipelines import train_tokenizer
from pipelines.encoding.splitting.patterns import GPT2, PATTERNS, pattern_of
from pipelines.readers.sources import Source, plan_blocks
from pipelines.runners.block_run import BlockRun
from pipelines.train import histogram
from pipelines.train.fertility import GROUP_BYTES
from pipelines.train.histogram import Cutting, Histogram, Origin, read_histogram, to_parquet
from pipelines.train.models import byte_level_bpe
from pipelines.train.options import TokenizerOptions
from pipelines.train.transforms import CountBlocks, CountJob
from pipelines.train.word_counter import BUCKETS
from pipelines.writers import staging
from schemas.errors import DataError, UsageError
from tests.tools.places import DATA, ROOT

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
FILES = [
    "config.yaml",
    "histogram.parquet",
    "report.json",
    "tokenizer.json",
    "tokenizer_config.json",
]
IN_PROCESS = "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")
TEXT = (
    "low lower lowest\nnew newer newest, it's wide wider widest\n\n"
    "Blåbær på Ærø: 中文字符 и кириллица 🙂\nlow lower lowest low\n"
) * 3


def train(output: Path, *flags: str) -> dict:
    """Runs the command in this process, a document a line; returns the report."""
    usual = [] if flags[0].startswith("--config=") else ["--document=line"]
    train_tokenizer.main([f"--output={output}", IN_PROCESS, *usual, *flags])
    return json.loads((output / "report.json").read_text())


def model(tokenizer_json: Path) -> dict:
    return json.loads(tokenizer_json.read_text())["model"]


def oracle(documents, vocab_size: int, min_frequency=2, add_prefix_space=False, specials=SPECIALS):
    """The model that `tokenizers` trains on whole documents."""
    theirs = ByteLevelBPETokenizer(add_prefix_space=add_prefix_space)
    theirs.train_from_iterator(
        documents, vocab_size, min_frequency, special_tokens=specials, show_progress=False
    )
    return json.loads(theirs.to_str())["model"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def trained(tmp_path: Path, text: Path) -> Path:
    train(tmp_path / "tokenizer", f"--input={text}", "--vocab_size=300")
    return tmp_path / "tokenizer"


def test_a_whole_run(tmp_path, text, capsys):
    report = train(tmp_path / "out", f"--input={text}", "--vocab_size=300")
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [".lock", *FILES]
    expected = oracle([line for line in TEXT.split("\n") if line], 300)
    assert model(tmp_path / "out" / "tokenizer.json") == expected
    assert report["text"]["documents"] == 12
    assert report["text"]["bytes"] == len(TEXT.encode()) - 15  # without the line ends
    assert report["vocab_size"] == 300 and report["merges"] == 39
    assert report["words"] == word_count(tmp_path / "out") == 3 * (3 + 9 + 8 + 4)
    printed = capsys.readouterr()
    assert "12 documents" in printed.out and "build_shards" in printed.out
    assert "gigatoken" not in printed.err and "Pretokenization" not in printed.err


def word_count(output: Path) -> int:
    return int(read_histogram(str(output / "histogram.parquet")).counts["count"].to_numpy().sum())


def test_the_report_is_what_the_tokenizer_does(trained):
    report = json.loads((trained / "report.json").read_text())
    tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    documents = [line for line in TEXT.split("\n") if line]
    tokens = sum(len(e) for e in tokenizer.encode_batch(documents, add_special_tokens=False))
    assert report["tokens"] == tokens
    assert report["bytes_per_token"] == sum(len(d.encode()) for d in documents) / tokens
    counts = read_histogram(str(trained / "histogram.parquet")).counts.to_pydict()
    single = [
        len(tokenizer.encode(word.decode(), add_special_tokens=False)) == 1
        for word in counts["word"]
    ]
    assert report["distinct_words_of_one_token"] == np.mean(single)
    assert report["words_of_one_token"] == np.average(single, weights=counts["count"])


def test_the_tokenizer_opens_and_works_everywhere(trained):
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    ours = Tokenizer.from_file(str(trained / "tokenizer.json"))
    sentence = "lower Blåbær 中文 🙂\n"
    encoded = ours.encode(sentence)
    assert encoded.tokens[0] == "<s>" and encoded.tokens[-1] == "</s>"
    assert ours.decode(encoded.ids) == sentence
    assert [ours.token_to_id(token) for token in SPECIALS] == [0, 1, 2, 3, 4]
    # The mask takes the space along, for it stands for a word with its space.
    assert ours.encode("low <mask>.", add_special_tokens=False).ids == [
        *ours.encode("low", add_special_tokens=False).ids,
        4,
        *ours.encode(".", add_special_tokens=False).ids,
    ]
    fast = PreTrainedTokenizerFast(tokenizer_file=str(trained / "tokenizer.json"))
    assert fast(sentence)["input_ids"] == encoded.ids
    auto = AutoTokenizer.from_pretrained(str(trained))
    assert auto(sentence)["input_ids"] == encoded.ids
    assert (auto.mask_token_id, auto.pad_token_id, auto.bos_token_id) == (4, 1, 0)


@pytest.mark.parametrize("flags", [(), ("--add_prefix_space",), ("--normalizer=nfc,lowercase",)])
def test_transformers_opens_other_patterns_too(tmp_path, text, flags):
    from transformers import AutoTokenizer

    train(tmp_path / "out", f"--input={text}", "--vocab_size=320", "--pattern=llama3", *flags)
    ours = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    auto = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    for sentence in ("lower It's 12345\n\n x", " Blåbær <mask> 中文", "", "\n"):
        assert auto(sentence)["input_ids"] == ours.encode(sentence).ids


TEMPLATE = """{%- for message in messages %}
    {%- if message.role == 'assistant' %}{% generation %}{{ message.content }}{% endgeneration %}
    {%- else %}{{ bos_token + message.content }}{% endif %}
    {%- if loop.last %}{% break %}{% endif %}
{%- endfor %}"""


@pytest.mark.parametrize(("specials", "task"), [("<s>,<mask>", "mlm"), ("<|endoftext|>", "clm")])
def test_the_next_command_is_one_that_the_tokenizer_serves(specials, task, tmp_path, text, capsys):
    train(tmp_path / "made", f"--input={text}", "--vocab_size=300", f"--special_tokens={specials}")
    assert f"build_shards --task={task} --input" in capsys.readouterr().out


def test_a_chat_template(tmp_path, text):
    from transformers import AutoTokenizer

    path = tmp_path / "chat.jinja"
    path.write_text(TEMPLATE)
    flags = (f"--input={text}", "--vocab_size=300", f"--chat_template={path}")
    train(tmp_path / "out", *flags)
    auto = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    chat = [{"role": "user", "content": "low"}, {"role": "assistant", "content": "wide"}]
    assert auto.apply_chat_template(chat, tokenize=False) == "<s>lowwide"
    marked = auto.apply_chat_template(
        chat, return_assistant_tokens_mask=True, return_dict=True, tokenize=True
    )
    ids, mask = np.array(marked["input_ids"]), np.array(marked["assistant_masks"], bool)
    assert auto.decode(ids[mask]) == "wide"
    train(tmp_path / "out", *flags)  # found
    path.write_text(TEMPLATE + "\n")
    with pytest.raises(UsageError, match="contains another tokenizer .chat_template"):
        train(tmp_path / "out", *flags)


def test_a_chat_template_whose_turns_have_no_end(tmp_path, text, capsys):
    path = tmp_path / "chat.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}")
    flags = (f"--input={text}", "--vocab_size=300", f"--chat_template={path}")
    train(tmp_path / "out", *flags)
    said = " ".join(capsys.readouterr().out.split())
    assert "--task=chat would reject this tokenizer" in said and "writes '<|im_end|>" in said
    train(tmp_path / "ends", *flags, "--special_tokens=<|endoftext|>,<|im_end|>")
    said = " ".join(capsys.readouterr().out.split())
    assert "warning" not in said
    assert "build_shards --task=chat --input=CONVERSATIONS --tokenizer=" in said


def test_chat_templates_that_are_refused(tmp_path, text):
    path = tmp_path / "chat.jinja"
    flags = (f"--input={text}", "--vocab_size=300", f"--chat_template={path}")
    for content, says in (
        (None, "cannot be read: .*No such file"),
        (b"\xff", "cannot be read: 'utf-8'"),
        (b"{% for m in messages %}\n{{ m.content }\n", "chat.jinja, line 2: unexpected '}'"),
        (b"{% if a %}", "line 1: Unexpected end of template.* it must be valid Jinja"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UsageError, match=says):
            train(tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()


def test_without_sentence_tokens_nothing_is_added(tmp_path, text):
    flags = (f"--input={text}", "--vocab_size=270", "--special_tokens=<|endoftext|>")
    train(tmp_path / "out", *flags)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.token_to_id("<|endoftext|>") == 0
    assert "<|endoftext|>" not in tokenizer.encode("low").tokens
    assert tokenizer.encode(" low").offsets[0][0] == 0
    train(tmp_path / "none", f"--input={text}", "--vocab_size=256", "--special_tokens=")
    assert len(model(tmp_path / "none" / "tokenizer.json")["vocab"]) == 256


@pytest.mark.parametrize("min_frequency", [1, 3])
@pytest.mark.parametrize("specials", ["<s>,</s>", "low,wid,中,!"])
def test_other_parameters_equal_tokenizers(tmp_path, text, min_frequency, specials):
    flags = ["--vocab_size=320", f"--min_frequency={min_frequency}", f"--special_tokens={specials}"]
    train(tmp_path / "out", f"--input={text}", "--add_prefix_space", *flags)
    documents = [line for line in TEXT.split("\n") if line]
    expected = oracle(documents, 320, min_frequency, True, specials.split(","))
    assert model(tmp_path / "out" / "tokenizer.json") == expected


def test_a_longest_token_equals_tokenizers(tmp_path, text):
    flags = ["--vocab_size=320", "--max_token_length=4"]
    report = train(tmp_path / "out", f"--input={text}", *flags)
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        min_frequency=2,
        max_token_length=4,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIALS,
        show_progress=False,
    )
    theirs.train_from_iterator(filter(None, TEXT.split("\n")), trainer)
    expected = json.loads(theirs.to_str())["model"]
    found = model(tmp_path / "out" / "tokenizer.json")
    assert (found["vocab"], found["merges"]) == (expected["vocab"], expected["merges"])
    assert max(len(token) for token in set(found["vocab"]) - set(SPECIALS)) == 3
    assert report["parameters"]["max_token_length"] == 4
    with pytest.raises(UsageError, match="max_token_length 4, not None"):
        train(tmp_path / "out", f"--input={text}", "--vocab_size=320")


def packed_lines(name: str) -> list[str]:
    """A file of the data, unpacked."""
    with zstandard.open(DATA / f"{name}.zst", "rt", encoding="utf-8") as file:
        return list(filter(None, file.read().split("\n")))


def real_documents() -> list[str]:
    """Norwegian reviews with line ends in them, WikiText, and every code point there is."""
    documents = [json.loads(line)["text"] for line in packed_lines("norec/valid.jsonl")[:300]]
    documents += packed_lines("wikitext-2/wiki.valid.tokens")[:1500]
    hard = DATA / "hard"
    documents += [document for document in json.loads((hard / "blns.json").read_text()) if document]
    return documents + [
        (hard / name).read_text() for name in ("bmp-separated.txt", "utf8tests.txt")
    ]


@needs_data
@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_real_texts_equal_tokenizers(tmp_path, add_prefix_space):
    documents = real_documents()
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    flags = ["--add_prefix_space"] if add_prefix_space else []
    train(tmp_path / "out", f"--input={path}", "--vocab_size=3000", *flags)
    expected = oracle(documents, 3000, add_prefix_space=add_prefix_space)
    assert model(tmp_path / "out" / "tokenizer.json") == expected
    flags += [f"--from_histogram={tmp_path}/out/histogram.parquet", "--vocab_size=6000"]
    train(tmp_path / "larger", *flags)
    expected = oracle(documents, 6000, add_prefix_space=add_prefix_space)
    assert model(tmp_path / "larger" / "tokenizer.json") == expected


def test_any_layout_block_size_and_runner_gives_the_same_bytes(tmp_path, monkeypatch):
    words = np.random.default_rng(0).integers(0, 500, (400, 12))
    lines = [" ".join(f"w{word}" for word in row) + "\n" for row in words]
    (tmp_path / "one.txt").write_text("".join(lines))
    for i in range(7):
        (tmp_path / f"part{6 - i}.txt").write_text("".join(lines[i::7]))
    expected = None
    for name, patterns, runner in [
        ("one", ["one.txt"], [IN_PROCESS]),
        ("seven", ["part*.txt"], [IN_PROCESS]),
        ("repeated", ["one.txt"], [IN_PROCESS, "--direct_runner_bundle_repeat=2"]),
        (
            "workers",
            ["part[0-3].txt", "part[4-6].txt"],
            [IN_PROCESS, "--direct_running_mode=multi_processing", "--direct_num_workers=2"],
        ),
    ]:
        output = tmp_path / name
        inputs = [f"--input={tmp_path}/{pattern}" for pattern in patterns]
        flags = ["--vocab_size=400", "--document=line", *runner, *inputs]
        train_tokenizer.main([f"--output={output}", *flags])
        named = {"report.json", "config.yaml"}  # these name the inputs
        found = [sha256(output / file) for file in FILES if file not in named]
        assert expected is None or found == expected
        expected = found


def languages(tmp_path: Path) -> dict[str, list[str]]:
    """Documents of three languages, more than their samples hold in two; repeats among them."""
    random = np.random.default_rng(0)
    texts: dict[str, list[str]] = {}
    for name, first, count in (("en", "a", 9000), ("no", "æ", 9000), ("zh", "中", 40)):
        words = [chr(ord(first) + n % 20) * (1 + n % 5) for n in range(60)]
        drawn = random.integers(0, 60, (count, 40))
        texts[name] = [" ".join(words[word] for word in row) for row in drawn]
        texts[name] += texts[name][:9]
    return texts


@pytest.mark.slow
def test_any_layout_and_runner_gives_the_same_fertility(tmp_path):
    texts = languages(tmp_path)
    for name, documents in texts.items():
        (tmp_path / "folders" / name / "deeper").mkdir(parents=True)
        folder = tmp_path / "folders" / name
        for part in range(3):
            path = folder / "deeper" / f"{part}.txt" if part else folder / "0.txt"
            path.write_text("".join(f"{document}\n" for document in documents[part::3]))
        (tmp_path / name).write_text("".join(f"{document}\n" for document in documents[::-1]))
    records = [{"text": t, "of": {"lang": name}} for name in texts for t in texts[name]]
    order = np.random.default_rng(1).permutation(len(records)).tolist()
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("".join(json.dumps(records[i]) + "\n" for i in order))

    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    threads = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    found = {}
    for layout, inputs in {
        "folders": [f"--input={tmp_path}/folders"],
        "inputs": [f"--input={tmp_path}/{name}" for name in ("zh", "no", "en")],
        "field": [f"--input={mixed}", "--group_field=of.lang"],
    }.items():
        runner = {"folders": processes, "inputs": threads}.get(layout, [])
        flags = ["--vocab_size=400", "--direct_runner_bundle_repeat=1", *runner, *inputs]
        found[layout] = train(tmp_path / layout / "out", *flags)["fertility"]
    assert found["folders"] == found["inputs"] == found["field"]
    assert [group["group"] for group in found["field"]] == ["no", "en", "zh"]
    no, en, zh = found["field"]
    assert (no["documents"], en["documents"], zh["documents"]) == (9009, 9009, 49)
    assert en["sampled_documents"] < 9000 and zh["sampled_documents"] == 40  # repeats once
    tokenizer = Tokenizer.from_file(str(tmp_path / "field" / "out" / "tokenizer.json"))
    once = texts["zh"][:40]
    tokens = sum(len(e) for e in tokenizer.encode_batch(once, add_special_tokens=False))
    assert zh["tokens_per_word"] == tokens / sum(len(text.split()) for text in once)
    assert zh["bytes_per_token"] == sum(len(text.encode()) for text in once) / tokens
    assert zh["characters_per_token"] == sum(map(len, once)) / tokens


@needs_data
def test_a_vocabulary_serves_the_language_it_has_more_of(tmp_path, capsys):
    texts = {}
    for name, count in (("imdb", 300), ("norec", 30)):
        with zstandard.open(DATA / name / "train.jsonl.zst", "rt", encoding="utf-8") as file:
            texts[name] = [json.loads(next(file))["text"] for _ in range(count)]
        lines = [json.dumps({"text": text}) for text in texts[name]]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    inputs = [f"--input={tmp_path}/{name}.jsonl" for name in texts]
    imdb, norec = train(tmp_path / "out", *inputs, "--vocab_size=4000")["fertility"]
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for figures, documents in zip((imdb, norec), texts.values(), strict=True):
        encoded = tokenizer.encode_batch(documents, add_special_tokens=False)
        tokens = sum(map(len, encoded))
        assert figures["documents"] == figures["sampled_documents"] == len(documents)
        assert figures["bytes_per_token"] == figures["bytes"] / tokens
        assert figures["tokens_per_word"] == tokens / sum(len(d.split()) for d in documents)
    assert imdb["tokens_per_word"] < 1.7 < 2 < norec["tokens_per_word"]
    assert imdb["words_of_over_3_tokens"] < norec["words_of_over_3_tokens"]
    assert f"{norec['tokens_per_word']:.2f}" in capsys.readouterr().out


def test_groups_of_a_field(tmp_path):
    path = tmp_path / "documents.jsonl"
    records = [{"text": "low", "n": 1}, {"text": "low", "n": True}, {"text": "low low"}]
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, {"text": "x", "n": [1]}]))
    flags = [f"--input={path}", "--vocab_size=262"]
    report = train(tmp_path / "out", *flags, "--group_field=n")
    assert report["text"]["refused"] == {"not_an_id": 1}
    assert [(g["group"], g["documents"]) for g in report["fertility"]] == [
        ("", 1),
        ("1", 1),
        ("true", 1),
    ]
    with pytest.raises(UsageError, match="group_field 'n', not None"):
        train(tmp_path / "out", *flags)
    ids = tmp_path / "ids.jsonl"
    ids.write_text("".join(json.dumps({"text": "low", "n": n}) + "\n" for n in range(1001)))
    with pytest.raises(UsageError, match="has more than 1,000 values, such as '0' and '99"):
        train(tmp_path / "ids", f"--input={ids}", "--vocab_size=262", "--group_field=n")


def test_small_blocks_give_the_same_histogram(tmp_path, text, monkeypatch):
    def histogram_of(block_bytes: int) -> str:
        source = TokenizerOptions.source

        def with_blocks(options):
            return replace(source(options), block_bytes=block_bytes)

        with monkeypatch.context() as patched:
            patched.setattr(TokenizerOptions, "source", with_blocks)
            train(tmp_path / str(block_bytes), f"--input={text}", "--vocab_size=300")
        return sha256(tmp_path / str(block_bytes) / "histogram.parquet")

    assert histogram_of(64) == histogram_of(1 << 20)


def test_documents_are_lines_paragraphs_or_files(tmp_path, text):
    for document, documents in {
        "paragraph": TEXT.split("\n\n"),
        "file": [TEXT],
    }.items():
        train(tmp_path / document, f"--input={text}", "--vocab_size=290", f"--document={document}")
        expected = oracle(
            [d.removesuffix("\n") if document != "file" else d for d in documents], 290
        )
        assert model(tmp_path / document / "tokenizer.json") == expected


def test_a_line_of_megabytes_without_separators(tmp_path):
    letters = np.random.default_rng(0).integers(97, 123, 3_500_000, np.uint8)
    (tmp_path / "line.txt").write_bytes(letters.tobytes())
    report = train(tmp_path / "out", f"--input={tmp_path}/line.txt", "--vocab_size=2000")
    assert report["words"] == 1 and report["vocab_size"] == 2000


def test_the_same_command_again_finds_it_and_others_are_refused(tmp_path, text, trained, capsys):
    before = {name: (trained / name).stat().st_mtime_ns for name in FILES}
    train(trained, f"--input={text}", "--vocab_size=300")
    assert "already contains this tokenizer" in capsys.readouterr().out
    assert before == {name: (trained / name).stat().st_mtime_ns for name in FILES}
    with pytest.raises(
        UsageError, match=r"vocab_size 300, not 310\).*--overwrite.*--from_histogra"
    ):
        train(trained, f"--input={text}", "--vocab_size=310")
    moved = text.rename(tmp_path / "moved.txt")
    train(trained, f"--input={moved}", "--vocab_size=300")  # the content counts, not the name
    moved.write_text(TEXT.replace("low", "owl"))
    with pytest.raises(UsageError, match="made from other text"):
        train(trained, f"--input={moved}", "--vocab_size=300")
    report = train(trained, f"--input={moved}", "--vocab_size=310", "--overwrite")
    assert report["parameters"]["vocab_size"] == 310
    (trained / "report.json").unlink()
    with pytest.raises(UsageError, match=r"no valid report.json"):
        train(trained, f"--input={moved}", "--vocab_size=310")


def test_an_edited_tokenizer_is_not_reused(text, trained):
    path = trained / "tokenizer.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(UsageError, match=r"its tokenizer.json does not match the sha256"):
        train(trained, f"--input={text}", "--vocab_size=300")


def test_from_histogram(tmp_path, text, trained):
    given = f"--from_histogram={trained}/histogram.parquet"
    with pytest.raises(UsageError, match="--from_histogram holds only words: leave --filter"):
        train(tmp_path / "again", given, "--vocab_size=300", "--filter=my_filters:spam")
    report = train(tmp_path / "again", given, "--vocab_size=300")
    assert sha256(tmp_path / "again" / "tokenizer.json") == sha256(trained / "tokenizer.json")
    assert sha256(tmp_path / "again" / "histogram.parquet") == sha256(trained / "histogram.parquet")
    assert report["text"]["documents"] == 12
    assert report["fertility"] == []
    with pytest.raises(UsageError, match="--group_field needs documents"):
        train(tmp_path / "again", given, "--vocab_size=300", "--group_field=lang")
    train(tmp_path / "again", given, "--vocab_size=300")  # found
    with pytest.raises(UsageError, match="there is no such file"):
        train(tmp_path / "again", "--from_histogram=gone", "--vocab_size=300")
    with pytest.raises(UsageError, match="is a directory; give the histogram.parquet"):
        train(tmp_path / "again", f"--from_histogram={trained}", "--vocab_size=300")
    with pytest.raises(UsageError, match="one is trained from text, the other from a histogram"):
        train(trained, given, "--vocab_size=300")
    train(trained, given, "--vocab_size=310", "--overwrite")  # its own histogram
    assert len(model(trained / "tokenizer.json")["vocab"]) == 310
    with pytest.raises(UsageError, match="was counted with --add_prefix_space=False, but this"):
        train(tmp_path / "other", given, "--vocab_size=300", "--add_prefix_space")
    assert not (tmp_path / "other" / "tokenizer.json").exists()


LOOKS_BACK = r"(?<=\d)\D|\p{L}+|\d+|."  # is not compiled here


def oracle_of(documents, vocab_size: int, pattern: str, add_prefix_space=False, normalizer=None):
    """The model that `tokenizers` trains with a pattern, and its pre_tokenizer as JSON."""
    tokenizer = Tokenizer(models.BPE())
    steps = [
        pre_tokenizers.Split(Regex(pattern_of(pattern)), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    if add_prefix_space:
        documents = [text if text[:1] == " " else f" {text}" for text in documents]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    if normalizer:
        tokenizer.normalizer = normalizer  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIALS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return json.loads(tokenizer.to_str())


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("pattern", ["cl100k", "o200k", "llama3", "qwen2", "digits:2", LOOKS_BACK])
def test_patterns_equal_tokenizers(tmp_path, text, pattern, add_prefix_space, capsys):
    text.write_text(TEXT + "12345 12,345 It'S IT'S theirTheir\t\tx 1234\n" * 3)
    flags = ["--add_prefix_space"] * add_prefix_space
    flags += ["--vocab_size=320", f"--pattern={pattern}"]
    report = train(tmp_path / "out", f"--input={text}", *flags)
    documents = list(filter(None, text.read_text().split("\n")))
    theirs = oracle_of(documents, 320, pattern, add_prefix_space)
    ours = json.loads((tmp_path / "out" / "tokenizer.json").read_text())
    assert ours["model"]["vocab"] == theirs["model"]["vocab"]
    assert ours["model"]["merges"] == theirs["model"]["merges"]
    cuts = [step for step in ours["pre_tokenizer"]["pretokenizers"] if step["type"] != "Metaspace"]
    assert cuts == theirs["pre_tokenizer"]["pretokenizers"]
    assert report["parameters"]["pattern"] == pattern
    assert ("`tokenizers` splits the" in capsys.readouterr().out) == (pattern == LOOKS_BACK)
    # The words of the report are those that the tokenizer makes of the text.
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    encoded = tokenizer.encode_batch(documents, add_special_tokens=False)
    assert report["tokens"] == sum(map(len, encoded))
    for document, encoding in zip(documents, encoded, strict=True):
        spaced = f" {document}" if add_prefix_space and document[0] != " " else document
        assert tokenizer.decode(encoding.ids) == spaced


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(
    ("pattern", "add_prefix_space"),
    [
        *((name, False) for name in PATTERNS if name != GPT2),
        ("digits:2", False),
        ("o200k", True),
        (LOOKS_BACK, True),
    ],
)
def test_patterns_equal_tokenizers_on_real_texts(tmp_path, pattern, add_prefix_space):
    documents = real_documents()
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    flags = ["--add_prefix_space"] * add_prefix_space
    flags += [f"--input={path}", "--vocab_size=5000", f"--pattern={pattern}"]
    train(tmp_path / "out", *flags)
    theirs = oracle_of(documents, 5000, pattern, add_prefix_space)["model"]
    ours = model(tmp_path / "out" / "tokenizer.json")
    assert (ours["vocab"], ours["merges"]) == (theirs["vocab"], theirs["merges"])


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("pattern", [*PATTERNS, "digits:1", "digits:2", LOOKS_BACK])
def test_large_vocabularies_equal_tokenizers(tmp_path, pattern):
    """36 MB: Norwegian reviews and WikiText. Merges of a smaller vocabulary are the first ones."""
    documents = [json.loads(line)["text"] for line in packed_lines("norec/train.jsonl")]
    documents += packed_lines("wikitext-2/wiki.train.tokens")
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    theirs = oracle_of(documents, 128_000, pattern)["model"]
    assert len(theirs["vocab"]) == 128_000
    given = [f"--input={path}", f"--pattern={pattern}"]
    for size in (128_000, 32_000, 5_000):
        train(tmp_path / str(size), *given, f"--vocab_size={size}")
        given = [f"--from_histogram={tmp_path}/{size}/histogram.parquet"]
        ours = model(tmp_path / str(size) / "tokenizer.json")
        assert ours["merges"] == theirs["merges"][: size - 261]
        assert (
            ours["vocab"].items() == {t: i for t, i in theirs["vocab"].items() if i < size}.items()
        )


def test_normalizers_equal_tokenizers(tmp_path, text):
    """Of three spellings one is left; where it would be empty, a document has no words."""
    text.write_text(TEXT + "cafe\u0301 CAFÉ café ﬁne\n\u0301\nﬁn\n" * 3, encoding="utf-8")
    names = "--normalizer=nfkd,strip_accents,lowercase"
    flags = [f"--input={text}", "--vocab_size=320", "--pattern=llama3", names]
    report = train(tmp_path / "out", *flags)
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    documents = list(filter(None, text.read_text(encoding="utf-8").split("\n")))
    theirs = oracle_of(documents, 320, "llama3", normalizer=normalizers.Sequence(steps))
    ours = json.loads((tmp_path / "out" / "tokenizer.json").read_text(encoding="utf-8"))
    assert ours["normalizer"] == theirs["normalizer"]
    assert ours["model"]["merges"] == theirs["model"]["merges"]
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert len({tuple(tokenizer.encode(f" {word}").ids) for word in ("CAFÉ", "cafe\u0301")}) == 1
    words = read_histogram(str(tmp_path / "out" / "histogram.parquet"))
    assert b"cafe" in words.words.to_pylist()
    assert report["text"]["bytes"] == words.origin.bytes > words.origin.normalized_bytes


def test_a_histogram_knows_how_its_words_were_cut(tmp_path, text):
    first = tmp_path / "first"
    train(first, f"--input={text}", "--vocab_size=300", "--pattern=llama3", "--normalizer=nfkc")
    histogram = f"--from_histogram={first}/histogram.parquet"
    train(tmp_path / "again", histogram, "--vocab_size=300")
    assert sha256(tmp_path / "again" / "tokenizer.json") == sha256(first / "tokenizer.json")
    train(tmp_path / "same", histogram, "--vocab_size=300", "--pattern=digits:3")
    assert sha256(tmp_path / "same" / "tokenizer.json") == sha256(first / "tokenizer.json")
    for flag, says in (
        (
            "--pattern=gpt2",
            "histogram.parquet was counted with --pattern=llama3, but this command has gpt2:",
        ),
        (
            "--normalizer=none",
            "was counted with --normalizer=nfkc, but this command has none:",
        ),
    ):
        with pytest.raises(UsageError, match=says):
            train(tmp_path / "other", histogram, "--vocab_size=300", flag)
    with pytest.raises(UsageError, match="pattern 'llama3', not None"):
        train(first, f"--input={text}", "--vocab_size=300")


def test_a_pattern_that_runs_away_on_the_text_ends_the_run(tmp_path):
    """What is tried before the run cannot know every text."""
    path, pattern = tmp_path / "text.txt", r"(?:(?:ba)+(?:baba)*)+c(?<=c)"
    path.write_text("low\n" + "ba" * 60 + "\n")
    command = [sys.executable, "-m", "pipelines.train_tokenizer", f"--output={tmp_path}/out"]
    command += [f"--input={path}", "--vocab_size=300", f"--pattern={pattern}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 1
    assert f"error: --pattern={pattern} fails on the text: Onig: Regex search" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_has_the_patterns_as_they_are():
    page = (ROOT / "docs" / "build_shards.md").read_text(encoding="utf-8")
    for name, pattern in PATTERNS.items():
        assert f"\n{name:7} {pattern}\n" in page


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (
            "(a",
            "--pattern '(a': it is not a regular expression of `tokenizers`: Oniguruma error: end",
        ),
        (r"(a+a+)+b(?<=b)", "--pattern '(a+a+)+b(?<=b)': '(a+a+)+b(?<=b)' fails: Onig: Regex sea"),
        ("a|" * 5000, "it has 10,000 characters; a tokenizer.json may have 8192"),
    ],
)
def test_patterns_that_are_refused(tmp_path, text, pattern, says):
    with pytest.raises(UsageError) as refused:
        train(tmp_path / "out", f"--input={text}", "--vocab_size=300", f"--pattern={pattern}")
    assert says in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_run_that_fails_leaves_what_was_there(tmp_path, text, trained, monkeypatch):
    before = {name: sha256(trained / name) for name in FILES}

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(byte_level_bpe, "tokenizer_json", fail)
    for output in (trained, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            train(output, f"--input={text}", "--vocab_size=310", "--overwrite")
    assert before == {name: sha256(trained / name) for name in FILES}
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".lock"]


def test_a_broken_document_is_refused_and_said(tmp_path, capsys):
    path = tmp_path / "documents.jsonl"
    path.write_bytes(b'{"text": "low low"}\n{broken\n{"text": ""}\n{"other": 1}\n')
    report = train(tmp_path / "out", f"--input={path}", "--vocab_size=262")
    assert report["text"]["refused"] == {"broken_json": 1, "empty": 1, "missing_field": 1}
    rejects = (tmp_path / "out" / "rejects" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in rejects] == ["broken_json", "missing_field"]
    with pytest.raises(DataError, match=r"2 documents were rejected, more than --max_rejects=1"):
        train(tmp_path / "strict", f"--input={path}", "--vocab_size=262", "--max_rejects=1")
    assert [path.name for path in (tmp_path / "strict").iterdir()] == [".lock"]


def test_line_ends_of_windows_are_warned_of(tmp_path, capsys):
    path = tmp_path / "text.txt"
    for ends, is_warned in (("\n", False), ("\r\n", True)):
        path.write_text("a line\nanother\n\na second paragraph\n" * 9, newline=ends)
        train(tmp_path / f"{is_warned}", f"--input={path}", "--vocab_size=262", "--document=file")
        assert ("contain a carriage return" in capsys.readouterr().out) is is_warned


def test_a_filter_chooses_what_is_counted_and_is_recorded(tmp_path, capsys, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("caf\u00e9 here\ncaf\u00e9 there\nshort\n" * 2, encoding="utf-8")
    (tmp_path / "word_chooser.py").write_text(
        "def choose(document):\n    return 'a word' if ' ' not in document['text'] else None\n"
        "def none(document):\n    return 'no'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--filter=word_chooser:choose", "--vocab_size=270")
    report = train(tmp_path / "out", f"--input={path}", *flags)
    assert report["text"]["documents"] == 4
    assert report["text"]["refused"] == {"filter:a word": 2}
    assert report["parameters"]["filter"] == "word_chooser:choose"
    assert "--filter=word_chooser:choose --tokenizer=" in " ".join(capsys.readouterr().out.split())
    words = read_histogram(str(tmp_path / "out" / "histogram.parquet")).words.to_pylist()
    assert "caf\u00e9".encode() in words and b"short" not in words
    with pytest.raises(UsageError, match="contains another tokenizer .*filter 'word_chooser"):
        train(tmp_path / "out", f"--input={path}", "--vocab_size=270")
    train(tmp_path / "out", f"--input={path}", "--vocab_size=270", "--overwrite")
    with pytest.raises(DataError, match="no document is left to train on: 6 filter:no"):
        train(
            tmp_path / "none", f"--input={path}", "--filter=word_chooser:none", "--vocab_size=270"
        )


def test_a_run_is_repeated_with_the_file_it_left(tmp_path, text):
    flags = ("--vocab_size=290", "--min_frequency=3", "--special_tokens=<s>,</s>")
    train(tmp_path / "one", f"--input={text}", "--document=paragraph", *flags)
    train(tmp_path / "two", f"--config={tmp_path / 'one' / 'config.yaml'}")
    train(tmp_path / "six", f"--config={tmp_path / 'one' / 'config.yaml'}", "--min_frequency=6")
    one, two, six = (sha256(tmp_path / n / "tokenizer.json") for n in ("one", "two", "six"))
    assert one == two != six
    assert sha256(tmp_path / "one" / "config.yaml") == sha256(tmp_path / "two" / "config.yaml")


def test_a_vocabulary_that_the_text_cannot_fill_is_said(tmp_path, text, capsys):
    report = train(tmp_path / "out", f"--input={text}", "--vocab_size=5000")
    assert report["vocab_size"] < 5000
    assert "no other pair of tokens occurs 2 times" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "error", "says"),
    [
        (["--vocab_size=260"], UsageError, "--vocab_size=260: at least 261, because the 256 bytes"),
        (["--vocab_size=300", "--min_frequency=-1"], UsageError, "--min_frequency=-1: at least 0"),
        (["--vocab_size=300", "--special_tokens=<s>,,<x>"], UsageError, "'' is empty"),
        (["--vocab_size=300", "--special_tokens=<s>, <x>"], UsageError, "' <x>' is empty or has w"),
        (["--vocab_size=300", "--special_tokens=a,b,a"], UsageError, "a is given twice"),
        (["--vocab_size=300", "--from_histogram=h"], UsageError, "give one of them"),
        (
            ["--vocab_size=300", "--pattern=gpt3"],
            UsageError,
            "--pattern=gpt3: no pattern",
        ),
        (["--vocab_size=300", "--input=/no/such"], DataError, "no file matches --input=/no/such"),
        (["--vocab_size=300", "--pattern=digits:0"], UsageError, "--pattern=digits:0: no pattern"),
        (["--vocab_size=300", "--normalizer=nfx"], UsageError, "'nfx' is none of none, nfc, nfd"),
        (["--vocab_size=300", "--normalizer=none,nfc"], UsageError, "'none' is none of"),
        (["--vocab_size=300", "--vocab_sise=3"], UsageError, "did you mean --vocab_size?"),
        (
            ["--vocab_size=300", "--normalize=nfc"],
            UsageError,
            "--normalize is a flag of build_corpus: python -m pipelines.build_corpus "
            "--normalize=nfc ... builds a corpus, which train_tokenizer reads as --input",
        ),
    ],
)
def test_refusals(tmp_path, text, flags, error, says):
    with pytest.raises(error) as refused:
        train(tmp_path / "out", f"--input={text}", *flags)
    assert says in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_refusals_of_inputs(tmp_path):
    with pytest.raises(UsageError, match="no input"):
        train(tmp_path / "out", "--vocab_size=300")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="empty"):
        train(tmp_path / "out", f"--input={tmp_path}/empty.txt", "--vocab_size=300")
    (tmp_path / "blank.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(DataError, match="no document is left to train on: 1 empty"):
        train(tmp_path / "out", f"--input={tmp_path}/blank.jsonl", "--vocab_size=300")


def test_what_is_published_before_the_lock_is_had_stays(tmp_path, text, monkeypatch):
    wait = staging.stage

    def let_another_finish(*args, **kwargs):
        monkeypatch.setattr(staging, "stage", wait)
        train(tmp_path / "out", f"--input={text}", "--vocab_size=310")
        return wait(*args, **kwargs)

    monkeypatch.setattr(staging, "stage", let_another_finish)
    with pytest.raises(UsageError, match="vocab_size 310, not 300"):
        train(tmp_path / "out", f"--input={text}", "--vocab_size=300")
    assert len(model(tmp_path / "out" / "tokenizer.json")["vocab"]) == 310


def test_a_directory_in_use_and_a_shard_set_are_refused(tmp_path, text):
    (tmp_path / "busy").mkdir()
    with (
        FileLock(tmp_path / "busy" / ".lock"),
        pytest.raises(UsageError, match="another run writes into"),
    ):
        train(tmp_path / "busy", f"--input={text}", "--vocab_size=300")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "MANIFEST.json").touch()
    with pytest.raises(UsageError, match="already contains a dataset .*use another directory"):
        train(tmp_path / "set", f"--input={text}", "--vocab_size=300", "--overwrite")
    with pytest.raises(
        UsageError, match="nowhere://b/t/MANIFEST.json: no package reads nowhere://"
    ):
        train_tokenizer.main(["--output=nowhere://b/t", f"--input={text}", "--vocab_size=300"])


def test_an_output_that_cannot_be_written(tmp_path, text):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file, or below a file"):
        train(tmp_path / "file" / "out", f"--input={text}", "--vocab_size=300")


def histogram_bytes(counts: dict[bytes, int], metadata: dict | None = None, **origin) -> bytes:
    table = pa.table([list(counts), list(counts.values())], schema=histogram.SCHEMA)
    given: dict[str, Any] = {"cutting": Cutting(), "documents": 1, "bytes": 3}
    given |= {"normalized_bytes": 3} | origin
    content = to_parquet(Histogram(table, Origin(**given)))
    if metadata is None:
        return content
    changed = pq.read_table(pa.BufferReader(content)).replace_schema_metadata(
        {"textmill.histogram": json.dumps(metadata)}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(changed, sink)
    return sink.getvalue().to_pybytes()


def test_histogram_round_trip(tmp_path):
    cutting = Cutting(r"\w+|é", "nfc,lowercase", True)
    (tmp_path / "h").write_bytes(histogram_bytes({b"\0": 1, b"a\xff": 1}, cutting=cutting))
    found = read_histogram(str(tmp_path / "h"))
    assert found.counts.to_pydict() == {"word": [b"\0", b"a\xff"], "count": [1, 1]}
    assert found.origin == Origin(cutting, 1, 3, 3)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no Parquet", "cannot be read as Parquet"),
        (histogram_bytes({b"b": 1, b"a": 2}), "is damaged"),
        (histogram_bytes({b"a": 1, b"a\0": 0}), "is damaged"),
        (histogram_bytes({b"a": 2}), "is damaged"),
        (histogram_bytes({b"a": 3}, bytes="3"), "bytes is '3', not of type int"),
        (histogram_bytes({b"a": 3}, {"format_version": 2}), "missing fields"),
        (histogram_bytes({b"a": 3}, {}), "has format version None"),
        (histogram_bytes({b"a": 3}, format_version=9), "has format version 9"),
        (histogram_bytes({b"abc": 1})[:-100], "cannot be read as Parquet"),
    ],
)
def test_histograms_that_are_refused(tmp_path, content, says):
    (tmp_path / "h").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_histogram(str(tmp_path / "h"))


def test_other_parquet_files_and_missing_ones_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "h")
    with pytest.raises(DataError, match="has no word counts"):
        read_histogram(str(tmp_path / "h"))
    with pytest.raises(UsageError, match="there is no such file"):
        train(tmp_path / "out", f"--from_histogram={tmp_path}/none", "--vocab_size=300")


def test_the_command_line_says_errors_in_one_paragraph(tmp_path):
    command = [sys.executable, "-m", "pipelines.train_tokenizer", f"--output={tmp_path}/out"]
    done = subprocess.run(
        [*command, "--input=/no/such", "--vocab_size=10"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --vocab_size=10: at least 261")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("phase", ["counting words", "merging"])
def test_ctrl_c_leaves_nothing(tmp_path, phase):
    path = tmp_path / "text [1].txt"
    path.write_text("".join(f"{i:x} {i * i:x} " for i in range(400_000)))
    command = [sys.executable, "-m", "pipelines.train_tokenizer", f"--input={path}"]
    command += ["--vocab_size=100000", f"--output={tmp_path}/out"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout and run.stderr
        assert any(line.startswith(phase) for line in run.stdout)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
        assert run.stderr.read().strip().endswith("interrupted")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]


def test_training_pulls_in_no_beam_from_a_histogram(trained, tmp_path):
    """Nor does help; Beam takes a second or more to import."""
    code = (
        "import sys; from pipelines import train_tokenizer\n"
        f"train_tokenizer.main(['--from_histogram={trained}/histogram.parquet',"
        f"'--vocab_size=280', '--output={tmp_path}/out'])\n"
        "assert not {'apache_beam', 'jax', 'torch', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_what_travels_between_workers(tmp_path):
    """A table a bucket and a bundle: not one a block, and nothing that grows with the text."""
    words = np.random.default_rng(0).integers(0, 5000, (20_000, 12))
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(f"w{word}" for word in row) + "\n" for row in words))
    source = Source((str(path),), "line", block_bytes=1 << 16)
    blocks = plan_blocks(source)
    assert len(blocks) > 20
    run, at = BlockRun("count", source, blocks, []), str(tmp_path)
    counted = {"cutting": Cutting(), "filter": "", "max_rejects": 0}
    job = run.job(CountJob, staging.Staging(at, at), **counted)
    counting = CountBlocks(job)
    counting.setup()
    counting.start_bundle()
    for block in blocks:
        counting.process(block)
    elements = [windowed.value for windowed in counting.finish_bundle()]
    *tables, sample, read = [value for _, value in elements]
    assert len(tables) == BUCKETS and len(sample) < GROUP_BYTES + 30 * read.documents
    distinct = sum(histogram.from_bytes(table).num_rows for table in tables)
    assert distinct == 5002  # the numbers, `w` and ` w`
    assert sum(map(len, tables)) < 64 * 700 + 25 * distinct  # 512 bytes of schema; 8 + 8 + 6 a word
    assert read.documents == len(words) and len(pickle.dumps(read)) < 200 * len(blocks)
