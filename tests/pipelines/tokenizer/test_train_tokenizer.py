"""train_tokenizer, whole: what it writes, finds, reports and refuses."""

import hashlib
import json
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.tools.places import ROOT
from textmill.pipelines import train_tokenizer
from textmill.pipelines.readers.sources import Source, plan_blocks
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.tokenizer import byte_level_bpe, histogram
from textmill.pipelines.tokenizer.fertility import GROUP_BYTES
from textmill.pipelines.tokenizer.histogram import PreTokenization, read_histogram
from textmill.pipelines.tokenizer.output import CountJob
from textmill.pipelines.tokenizer.transforms import CountBlocks
from textmill.pipelines.tokenizer.word_counter import BUCKETS
from textmill.pipelines.writers import staging
from textmill.schemas.errors import DataError, UsageError

WORDPIECE = "--model=wordpiece"
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
FILES = [
    "MANIFEST.json",
    "config.yaml",
    "histogram.parquet",
    "report.json",
    "tokenizer.json",
    "tokenizer_config.json",
]


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def in_words(text):
    """On one line, as what is printed may be wrapped."""
    return " ".join(text.split())


@pytest.fixture
def trained(train, tmp_path):
    train("tokenizer")
    return tmp_path / "tokenizer"


def test_a_whole_run(train, tmp_path, text, capsys):
    report = train("out")
    output = tmp_path / "out"
    assert sorted(path.name for path in output.iterdir()) == [".lock", *FILES]
    documents = list(filter(None, text.read_text("utf-8").split("\n")))
    lengths = [len(document.encode()) for document in documents]
    assert report["text"]["documents"] == len(documents) == 12
    assert report["text"]["bytes"] == sum(lengths)
    assert (report["vocab_size"], report["merges"]) == (300, 39)
    tokenizer = Tokenizer.from_file(str(output / "tokenizer.json"))
    tokens = sum(map(len, tokenizer.encode_batch(documents, add_special_tokens=False)))
    assert report["tokens"] == tokens
    assert report["bytes_per_token"] == sum(lengths) / tokens
    counts = read_histogram(str(output / "histogram.parquet")).counts.to_pydict()
    assert report["words"] == sum(counts["count"]) == 3 * (3 + 9 + 8 + 4)
    single = [
        len(tokenizer.encode(word.decode(), add_special_tokens=False)) == 1
        for word in counts["word"]
    ]
    assert report["distinct_words_of_one_token"] == np.mean(single)
    assert report["words_of_one_token"] == np.average(single, weights=counts["count"])
    printed = capsys.readouterr()
    assert "12 documents" in printed.out
    assert "build_shards --task=mlm --input" in in_words(printed.out)
    assert "gigatoken" not in printed.err and "Pretokenization" not in printed.err

    sentence = "lower Blåbær 中文 🙂\n"
    encoded = tokenizer.encode(sentence)
    assert encoded.tokens[0] == "<s>" and encoded.tokens[-1] == "</s>"
    assert tokenizer.decode(encoded.ids) == sentence
    assert [tokenizer.token_to_id(token) for token in SPECIALS] == [0, 1, 2, 3, 4]
    # The mask takes the space along, for it stands for a word with its space.
    low, mask, stop = (tokenizer.encode(text).ids[1:-1] for text in ("low", "low <mask>.", "."))
    assert mask == [*low, 4, *stop]


@pytest.mark.parametrize(
    "flags",
    [
        ["--pattern=llama3"],
        ["--pattern=llama3", "--add_prefix_space"],
        ["--pattern=llama3", "--normalizer=nfc,lowercase"],
    ],
    ids=" ".join,
)
def test_transformers_opens_the_directory(train, tmp_path, flags):
    from transformers import AutoTokenizer

    train("out", *flags)
    ours = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    auto = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    for sentence in ("lower It's 12345\n\n x", " Blåbær <mask> 中文🙂\n", "", "\n"):
        assert auto(sentence)["input_ids"] == ours.encode(sentence).ids
    assert (auto.mask_token_id, auto.pad_token_id, auto.bos_token_id) == (4, 1, 0)


def test_without_sentence_tokens_nothing_is_added(train, tmp_path, capsys):
    train("out", "--special_tokens=<|endoftext|>")
    assert "build_shards --task=clm --input" in in_words(capsys.readouterr().out)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert tokenizer.token_to_id("<|endoftext|>") == 0
    assert "<|endoftext|>" not in tokenizer.encode("low").tokens
    assert tokenizer.encode(" low").offsets[0][0] == 0
    assert train("none", "--vocab_size=256", "--special_tokens=")["vocab_size"] == 256


# ---- chat templates ----

TEMPLATE = """{%- for message in messages %}
    {%- if message.role == 'assistant' %}{% generation %}{{ message.content }}{% endgeneration %}
    {%- else %}{{ bos_token + message.content }}{% endif %}
    {%- if loop.last %}{% break %}{% endif %}
{%- endfor %}"""


def test_a_chat_template(train, tmp_path):
    from transformers import AutoTokenizer

    path = tmp_path / "chat.jinja"
    path.write_text(TEMPLATE)
    train("out", f"--chat_template={path}")
    auto = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    chat = [{"role": "user", "content": "low"}, {"role": "assistant", "content": "wide"}]
    assert auto.apply_chat_template(chat, tokenize=False) == "<s>lowwide"
    marked = auto.apply_chat_template(
        chat, return_assistant_tokens_mask=True, return_dict=True, tokenize=True
    )
    ids, mask = np.array(marked["input_ids"]), np.array(marked["assistant_masks"], bool)
    assert auto.decode(ids[mask]) == "wide"
    train("out", f"--chat_template={path}")  # found
    path.write_text(TEMPLATE + "\n")
    with pytest.raises(UsageError, match="contains a different tokenizer .chat_template"):
        train("out", f"--chat_template={path}")


def test_a_chat_template_whose_turns_have_no_end(train, tmp_path, capsys):
    path = tmp_path / "chat.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}")
    train("out", f"--chat_template={path}")
    said = in_words(capsys.readouterr().out)
    assert "--task=chat would reject this tokenizer" in said and "writes '<|im_end|>" in said
    train("ends", f"--chat_template={path}", "--special_tokens=<|endoftext|>,<|im_end|>")
    said = in_words(capsys.readouterr().out)
    assert "warning" not in said
    assert "build_shards --task=chat --input=CONVERSATIONS --tokenizer=" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: .*No such file"),
        (b"\xff", "cannot be read: 'utf-8'"),
        (b"{% for m in messages %}\n{{ m.content }\n", "chat.jinja, line 2: unexpected '}'"),
        (b"{% if a %}", "line 1: Unexpected end of template.* it must be valid Jinja"),
    ],
)
def test_chat_templates_that_are_refused(train, tmp_path, content, says):
    if content is not None:
        (tmp_path / "chat.jinja").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        train("out", f"--chat_template={tmp_path}/chat.jinja")
    assert not (tmp_path / "out").exists()


def test_what_travels_between_workers(tmp_path):
    """A table a bucket and a bundle: not one a block, and nothing that grows with the text."""
    words = np.random.default_rng(0).integers(0, 5000, (20_000, 12))
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(f"w{word}" for word in row) + "\n" for row in words))
    source = Source((str(path),), "line", block_bytes=1 << 16)
    blocks = plan_blocks(source)
    assert len(blocks) > 20
    run, at = BlockRun("count", source, blocks, []), str(tmp_path)
    counted = {"cutting": PreTokenization(), "filter": "", "max_rejects": 0}
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


# ---- what is there already ----


def test_the_same_command_again_finds_it_and_others_are_refused(
    train, tmp_path, text, trained, capsys
):
    before = {name: (trained / name).stat().st_mtime_ns for name in FILES}
    train("tokenizer")
    assert "already contains this tokenizer" in capsys.readouterr().out
    assert before == {name: (trained / name).stat().st_mtime_ns for name in FILES}
    for flag, says in {
        "--vocab_size=310": r"vocab_size: stored 300, requested 310\).*--overwrite.*--from_h",
        "--pattern=llama3": 'pattern: stored null, requested "llama3"',
        "--max_token_length=4": "max_token_length: stored null, requested 4",
        "--group_field=n": 'group_field: stored null, requested "n"',
    }.items():
        with pytest.raises(UsageError, match=says):
            train("tokenizer", flag)
    for name in ("tokenizer.json", "report.json", "histogram.parquet"):
        whole = (trained / name).read_bytes()
        for content in (whole[1:], b"#" + whole[1:]):
            (trained / name).write_bytes(content)
            with pytest.raises(DataError, match=f"{name} (has|was changed)"):
                train("tokenizer")
        (trained / name).write_bytes(whole)
    moved = text.rename(tmp_path / "moved.txt")
    train("tokenizer", f"--input={moved}")  # the content counts, not the name
    moved.write_text(moved.read_text("utf-8").replace("low", "owl"), "utf-8")
    with pytest.raises(UsageError, match="made from other text"):
        train("tokenizer", f"--input={moved}")
    report = train("tokenizer", f"--input={moved}", "--vocab_size=310", "--overwrite")
    assert report["parameters"]["vocab_size"] == 310


def test_a_run_that_fails_leaves_what_was_there(train, tmp_path, trained, monkeypatch):
    before = {name: sha256(trained / name) for name in FILES}

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(byte_level_bpe, "tokenizer_of", fail)
    for name in ("tokenizer", "new"):
        with pytest.raises(KeyboardInterrupt):
            train(name, "--vocab_size=310", "--overwrite")
    assert before == {name: sha256(trained / name) for name in FILES}
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".lock"]


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


# ---- what is warned of, and refused ----


def test_a_broken_document_is_refused_and_said(train, tmp_path):
    path = tmp_path / "documents.jsonl"
    path.write_bytes(b'{"text": "low low"}\n{broken\n{"text": ""}\n{"other": 1}\n')
    flags = (f"--input={path}", "--vocab_size=262")
    report = train("out", *flags)
    assert report["text"]["refused"] == {"broken_json": 1, "empty": 1, "missing_field": 1}
    rejects = (tmp_path / "out" / "rejects" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in rejects] == ["broken_json", "missing_field"]
    with pytest.raises(DataError, match=r"2 documents were rejected, more than --max_rejects=1"):
        train("strict", *flags, "--max_rejects=1")
    assert [path.name for path in (tmp_path / "strict").iterdir()] == [".lock"]


def test_line_ends_of_windows_are_warned_of(train, text, capsys):
    for ends, is_warned in (("\n", False), ("\r\n", True)):
        text.write_text("a line\nanother\n\na second paragraph\n" * 9, newline=ends)
        train(f"{is_warned}", "--vocab_size=262", "--document=file")
        assert ("contain a carriage return" in capsys.readouterr().out) is is_warned


def test_a_vocabulary_that_the_text_cannot_fill_is_said(train, capsys):
    assert train("out", "--vocab_size=5000")["vocab_size"] < 5000
    assert "no other pair of tokens occurs 2 times" in capsys.readouterr().out


def test_a_filter_chooses_what_is_counted_and_is_recorded(
    train, tmp_path, text, capsys, monkeypatch
):
    text.write_text("caf\u00e9 here\ncaf\u00e9 there\nshort\n" * 2, encoding="utf-8")
    (tmp_path / "word_chooser.py").write_text(
        "def choose(document):\n    return 'a word' if ' ' not in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--filter=word_chooser:choose", "--vocab_size=270")
    report = train("out", *flags)
    assert report["text"]["documents"] == 4
    assert report["text"]["refused"] == {"filter:a word": 2}
    assert report["parameters"]["filter"] == "word_chooser:choose"
    assert "--filter=word_chooser:choose --tokenizer=" in in_words(capsys.readouterr().out)
    with pytest.raises(UsageError, match='different tokenizer .*filter: stored "word_chooser'):
        train("out", "--vocab_size=270")
    text.write_text("short\n" * 6)
    with pytest.raises(DataError, match="no document is left to train on: 6 filter:a word"):
        train("none", *flags)
    text.write_text("\u0301\n\u0302\n", encoding="utf-8")
    with pytest.raises(DataError, match="--normalizer leaves no text of any document"):
        train("none", "--vocab_size=270", "--normalizer=nfd,strip_accents")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--vocab_size=260"], "--vocab_size=260: at least 261, because the 256 bytes"),
        (["--min_frequency=-1"], "--min_frequency=-1: at least 0"),
        (["--max_token_length=0"], "--max_token_length=0: at least 1"),
        ([f"--max_token_length={1 << 63}"], f"{1 << 63}: at least 1 and below 2**63"),
        (["--special_tokens=<s>,,<x>"], "'' is empty"),
        (["--special_tokens=<s>, <x>"], "' <x>' is empty or has w"),
        (["--special_tokens=a,b,a"], "a is given twice"),
        (["--pattern=gpt3"], "--pattern=gpt3: no pattern"),
        (["--pattern=digits:0"], "--pattern=digits:0: no pattern"),
        (
            ["--pattern=(a"],
            "--pattern=(a: it is not a regular expression of `tokenizers`: Oniguruma error: end",
        ),
        (
            ["--pattern=(a+a+)+b(?<=b)"],
            "--pattern=(a+a+)+b(?<=b): '(a+a+)+b(?<=b)' fails: Onig: Regex sea",
        ),
        ([f"--pattern={'a|' * 5000}"], "it has 10,000 characters; a tokenizer.json may have 8192"),
        (["--normalizer=nfx"], "'nfx' is none of none, nfc, nfd"),
        (["--normalizer=none,nfc"], "'none' is none of"),
        (["--model=unigram"], "--model=unigram: give one of bpe, wordpiece"),
        (
            ["--model=bpe", "--limit_alphabet=9"],
            "--limit_alphabet=9: it has no effect w",
        ),
        (["--model=bpe", "--no_lowercase"], "--lowercase=False: it has no effect with bpe"),
        ([WORDPIECE, "--vocab_size=4"], "--vocab_size=4: at least 5, because the special tokens"),
        ([WORDPIECE, "--special_tokens=[CLS]"], "--special_tokens=[CLS]: wordpiece needs [UNK]"),
        ([WORDPIECE, "--pattern=gpt2"], "--pattern=gpt2: it has no effect with"),
        ([WORDPIECE, "--add_prefix_space"], "--add_prefix_space=True: it has no effect with"),
        ([WORDPIECE, "--limit_alphabet=0"], "--limit_alphabet=0: at least 1"),
        (["--normalize=nfc"], "--normalize is a flag of build_corpus: python -m pipelines.build_c"),
    ],
)
def test_flags_that_are_refused(train, tmp_path, flags, says):
    with pytest.raises(UsageError) as refused:
        train("out", *flags)
    assert says in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_no_input_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no input: give --input=PATH"):
        train_tokenizer.main([f"--output={tmp_path}/out", "--vocab_size=300"])
