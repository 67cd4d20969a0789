"""Small versions of the files that pages name, so that their commands run."""

import contextlib
import datetime
import gzip
import io
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""
CHAT_TOKENS = "<s>,<pad>,</s>,<unk>,<mask>,<|im_start|>,<|im_end|>"
ROWS = "python -m pipelines.build_shards --tokenizer=tokenizer --input=corpus --num_shards=1 "
Run = Callable[[str], str]


def write_inputs(texts: Sequence[str]) -> None:
    """Writes texts in all forms, in the working directory."""
    for number, text in enumerate(texts):
        for folder in ("texts", "text", "my_texts"):
            write(f"{folder}/{number}.txt", text)
        write(f"textbooks/{number}.txt", text.title())
        split, label = ("train", "test")[number % 2], ("pos", "neg")[number // 2 % 2]
        write(f"aclImdb/{split}/{label}/{number}.txt", text)
    records = [{"text": text, "lang": "en"} for text in texts]
    for name in ("pages.jsonl", "demo/raw.jsonl"):
        write_lines(name, records)
    for name, some in (
        ("web", records),
        ("crawls/june/1", records[:99]),
        ("crawls/july/1", records[50:]),
    ):
        write_lines(f"{name}.jsonl.zst", some)
    labelled = [
        {"text": t, "label": ("neg", "pos")["a" in t.split()], "good": n % 2}
        for n, t in enumerate(texts)
    ]
    # Pages show counts of duplicates.
    for name, some in (("train", labelled[60:] + labelled[-1:]), ("validation", labelled[:60])):
        write_lines(f"{name}.jsonl", some)
    write_lines("reviews.jsonl", labelled[:9])
    for name in ("reviews.txt", "wiki.train.tokens", "wiki.valid.tokens"):
        write(name, "\n".join(" ".join(text.split()) for text in texts[:9]) + "\n")
    write("train-v1.1.json", json.dumps(squad(texts[20:50])))
    for name in ("dev-v1.1.json", "squad/dev-v1.1.json"):
        write(name, json.dumps(squad(texts[:20])))
    pq.write_table(pa.table({"question": list(texts[20:30])}), "mmlu.parquet")
    Path("chats").mkdir()
    chats = [
        [{"role": "user", "content": text}, {"role": "assistant", "content": text.upper()}]
        for text in texts[:60]
    ]
    pq.write_table(pa.table({"messages": chats}), "chats/a.parquet")
    write("chatml.jinja", CHATML)
    write_lines("prose.jsonl", [{"text": prose(texts, n)} for n in range(20)])
    write_warc("crawl/1.warc.gz", texts)


def prose(texts: Sequence[str], seed: int) -> str:
    """Sentences of words at random, which the rules for web pages keep."""
    words = [word.lower() for text in texts for word in text.split() if word.isalpha()]
    draw = random.Random(seed)
    return "\n".join(" ".join(draw.choices(words, k=16)) + "." for _ in range(9))


def squad(texts: Sequence[str]) -> dict:
    """Questions about the first word of each text."""
    paragraphs = [
        {
            "context": text,
            "qas": [
                {
                    "id": str(number),
                    "question": f"What is the first word of text {number}?",
                    "answers": [{"text": text.split()[0], "answer_start": 0}],
                }
            ],
        }
        for number, text in enumerate(text.strip() for text in texts)
    ]
    return {"version": "1.1", "data": [{"title": "texts", "paragraphs": paragraphs}]}


def write_warc(path: str, texts: Sequence[str]) -> None:
    """A page for each text."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        for number, text in enumerate(texts):
            paragraphs = "".join(f"<p>{part}</p>" for part in text.split("\n\n"))
            page = f"<html><title>Page {number}</title><main>{paragraphs}</main></html>".encode()
            body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
            date = datetime.datetime(2026, 1, 1).isoformat()
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:page:{number}>\r\n"
                f"WARC-Target-URI: https://a.example/{number}\r\nWARC-Date: {date}Z\r\n"
                "Content-Type: application/http; msgtype=response\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            file.write(gzip.compress(head.encode() + body + b"\r\n\r\n"))


def write(path: str, text: str) -> None:
    """Writes a file, and its directory."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def write_lines(path: str, records: Sequence[dict]) -> None:
    """JSON Lines, compressed if the name says so."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    with open(path, "wb") as file:
        with pa.CompressedOutputStream(file, "zstd") if path.endswith(".zst") else file as out:
            out.write(lines)


def build_world(texts: Sequence[str], run: Run) -> None:
    """Inputs, corpora, tokenizers and datasets in the working directory."""
    write_inputs(texts)
    run(
        "python -m pipelines.build_corpus --input=texts --output=corpus --min_words=15 "
        "--gopher_min_alphabetic=0.8 --keep_rejects"
    )
    shutil.copytree("corpus", "may")
    documents = pq.read_table(sorted(Path("corpus").glob("documents-*.parquet")))
    ids = documents["id"].to_pylist()
    write("page.txt", documents["text"][0].as_py())
    write("DIGESTS.txt", "\n".join([*ids[:2], "0" * 32]) + "\n")
    train = "python -m pipelines.train_tokenizer --input=corpus --vocab_size=600 "
    run(f"{train} --output=tokenizer")
    run(f"{train} --output=model --chat_template=chatml.jinja --special_tokens='{CHAT_TOKENS}'")
    shutil.copytree("tokenizer", "gpt2")
    packed = f"{ROWS} --task=clm --max_length=128 --splits=train:0.9,validation:0.1"
    run(f"{packed} --file_format=both --output=shards")
    run(f"{packed} --file_format=both --encoding=bytes --output=shards-bytes")
    run(f"{ROWS} --task=mlm --max_length=64 --output=demo/shards")
    for name in ("books", "web"):
        shutil.copytree("shards", name)
    run(f"{ROWS} --task=tokens --file_format=npy,llmc,array_record --output=documents")
    for to in ("parquet", "arrow"):
        run(f"python -m pipelines.export shards --to={to} --output=shards-{to}")
    run("python -m pipelines.export shards --to=parquet --layout=huggingface --output=rows")


def train_models(run: Run) -> None:
    """Adds trained models and what takes seconds, in a copy of that directory."""
    run("python -m pipelines.build_corpus --input=corpus --forget=DIGESTS.txt --output=corpus_2")
    run(f"{ROWS.replace('=corpus', '=corpus_2')} --task=clm --output=shards_2")
    run(
        "python -m pipelines.train_quality_model --good=textbooks --other=corpus "
        "--output=quality.bin"
    )
    run(
        "python -m pipelines.build_shards --task=chat --input='chats/*.parquet' --tokenizer=model "
        "--max_length=64 --num_shards=1 --output=chat"
    )
    run(
        "python -m trainers.flax_clm --shards=shards --model=tiny --steps=3 --batch_size=2 "
        "--output=run --export=trained"
    )
    shutil.copytree("run", "other_run")
    for name in ("published", "gpt2"):
        shutil.copytree("trained", name, dirs_exist_ok=True)
    run(
        "python -m pipelines.train_tokenizer --model=wordpiece --input=corpus --vocab_size=600 "
        "--output=minilm"
    )
    rows = ROWS.replace("=tokenizer", "=minilm")
    run(f"{rows} --task=mlm --max_length=64 --output=mlm_shards")
    rows = rows.replace("=corpus", "=train.jsonl")
    run(f"{rows} --task=classification --max_length=64 --output=classified")
    write_encoder("minilm", vocab_size=600)
    shutil.copytree("minilm", "MiniLM-L6")


def write_encoder(directory: str, *, vocab_size: int) -> None:
    """Weights of a BERT without a head, as those of sentence encoders."""
    import transformers  # takes seconds

    config = transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(directory)


@contextlib.contextmanager
def printed():
    """Collects what is printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out
