"""The documents of rows, put together again from the rows, are the documents of the input."""

import json
from collections import defaultdict

import numpy as np
import pytest
from tokenizers import Tokenizer
from xxhash import xxh3_128_digest

from tests.golden.outputs import HERE, KEPT
from textmill.pipelines import build_shards, inspect_shards
from textmill.pipelines.writers.document_formats import open_documents
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.features import unmask
from textmill.schemas.format.row_documents import RowDocuments
from textmill.trainers.data.shard_set import ShardSet

TOKENIZER = Tokenizer.from_file(str(KEPT / "bpe" / "tokenizer.json"))


def read_input(name):
    return [*map(json.loads, (HERE / "inputs" / name).read_text().splitlines())]


def digest_of(text):
    return xxh3_128_digest(text.encode())


LINES, CHATS = read_input("documents.jsonl"), read_input("chat.jsonl")
TEXTS = {digest_of(line["text"]): line["text"] for line in LINES}
BOS, EOS = map(TOKENIZER.token_to_id, ("<s>", "</s>"))


def build(directory, *flags, name="documents"):
    build_shards.main(
        [
            *(f"--input={HERE / 'inputs' / name}.jsonl", f"--output={directory}"),
            *(f"--tokenizer={KEPT / 'bpe'}", "--splits=train:0.8,validation:0.2"),
            *("--num_shards=train:2,validation:1", "--max_length=32", *flags),
        ]
    )
    return read_dataset(str(directory))


def pieces_of(info):
    """By digest and masked copy: (first token, ids) of each segment of the document."""
    found = defaultdict(list)
    shards = ShardSet(info.directory)
    for split in filter(shards.rows, shards.splits):
        [rows] = shards.sequential_batches(split, batch_size=shards.rows(split))
        ids, segment_ids, at = unmask(rows), rows["segment_ids"], 0
        for file in info.manifest.shards(split, info.schema.read_ending):
            documents = RowDocuments(info.locate(f"{file.path.split('.')[0]}.documents"))
            row_S, document_S, first_S = documents.documents_of(np.arange(file.rows))
            count = np.zeros(file.rows, int)
            for row, document, first in zip(row_S, document_S, first_S, strict=True):
                count[row] += 1
                piece = ids[at + row][segment_ids[at + row] == count[row]].tolist()
                found[documents.digests[document].tobytes()].append((int(first), piece))
            assert count.tolist() == segment_ids[at : at + file.rows].max(axis=1).tolist()
            at += file.rows
    return found


def laid_out(pieces):
    """The ids of all pieces in the order of their first tokens, which lie end to end."""
    ids = []
    for first, piece in sorted(pieces):
        assert first == len(ids)
        ids += piece
    return ids


@pytest.mark.parametrize("packing", ["best_fit", "concat", "none"])
def test_rows_of_clm(tmp_path, packing):
    found = pieces_of(build(tmp_path / "set", "--task=clm", f"--packing={packing}"))
    assert {TEXTS[digest]: laid_out(pieces) for digest, pieces in found.items()} == {
        text: [*TOKENIZER.encode(text, add_special_tokens=False).ids, EOS]
        for text in TEXTS.values()
    }
    assert max(map(len, found.values())) > 2  # long documents are cut


def test_masked_copies_of_mlm(tmp_path):
    """Training rows have three copies; each piece is between <s> and </s>."""
    flags = ["--mask_copies=3", "--packing=best_fit"]
    found = pieces_of(build(tmp_path / "set", "--task=mlm", *flags))
    assert found.keys() == TEXTS.keys()
    times = []
    for digest, pieces in found.items():
        pieces.sort()
        copies = 3 if pieces[0] == pieces[1 % len(pieces)] and len(pieces) > 1 else 1
        assert pieces == sorted(pieces[::copies] * copies)
        texts = laid_out(pieces[::copies])
        ids = [i for i in texts if i not in (BOS, EOS)]
        assert ids == TOKENIZER.encode(TEXTS[digest], add_special_tokens=False).ids
        times.append(copies)
    assert {*times} == {1, 3}


def test_whole_documents(tmp_path):
    """Tokenized documents are listed in their order."""
    info = build(tmp_path / "set", "--task=tokens", "--file_format=megatron", "--bos")
    found = {}
    for file in info.manifest.files:
        if file.path.endswith(".megatron.bin"):
            ids = open_documents(info.schema, file.path, info.locate)
            documents = RowDocuments(info.locate(f"{file.path.split('.')[0]}.documents"))
            assert documents.rows == file.rows
            row_S, document_S, first_S = documents.documents_of(np.arange(documents.rows))
            assert row_S.tolist() == document_S.tolist() == [*range(documents.rows)]
            assert not first_S.any()
            for start, stop, digest in zip(
                ids.offsets[:-1], ids.offsets[1:], documents.digests, strict=True
            ):
                found[TEXTS[digest.tobytes()]] = ids.values[start:stop].tolist()
    assert found == {
        text: [BOS, *TOKENIZER.encode(text, add_special_tokens=False).ids, EOS]
        for text in TEXTS.values()
    }


def test_each_pair_of_text_and_label_is_a_document(tmp_path):
    found = pieces_of(build(tmp_path / "set", "--task=classification"))
    assert found.keys() == {
        xxh3_128_digest(digest_of(line["text"]) + digest_of(line["label"])) for line in LINES
    }
    assert all([first for first, _ in pieces] == [0] for pieces in found.values())


def test_inputs_of_span_corruption(tmp_path):
    """The tokens that are left of each document, in the order of its pieces."""
    flags = ["--task=span_corruption", "--mean_span_length=8", "--max_length=48"]
    found = pieces_of(build(tmp_path / "set", *flags))
    assert found.keys() == TEXTS.keys()
    sentinels = {TOKENIZER.token_to_id(f"<extra_id_{i}>") for i in range(2)}
    for digest, pieces in found.items():
        whole = iter(TOKENIZER.encode(TEXTS[digest], add_special_tokens=False).ids)
        kept = [i for i in laid_out(pieces) if i not in (EOS, *sentinels)]
        assert kept and all(i in whole for i in kept)  # a subsequence


def test_windows_of_a_question(tmp_path):
    flags = ["--task=qa", "--max_length=96", "--window_stride=16"]
    flags += ["--max_question_length=16", "--max_answer_length=12"]
    found = pieces_of(build(tmp_path / "set", *flags, name="questions"))
    assert len(found) == 4
    assert max(map(len, found.values())) > 1
    for pieces in found.values():
        assert laid_out(pieces)[-1] == EOS


def test_a_conversation_is_a_document(tmp_path):
    flags = ["--task=chat", f"--chat_template={HERE / 'inputs' / 'chat.jinja'}"]
    found = pieces_of(build(tmp_path / "set", *flags, name="chat"))
    texts = [TOKENIZER.decode(laid_out(pieces)) for pieces in found.values()]
    for line in CHATS:
        contents = [message["content"] for message in line["messages"]]
        assert [all(c in text for c in contents) for text in texts].count(True) == 1
    assert len(texts) == len(CHATS)


def test_inspect_shards_shows_them(tmp_path, capsys):
    build(tmp_path / "set", "--task=clm", "--packing=concat")
    capsys.readouterr()
    inspect_shards.main([str(tmp_path / "set"), "--row=1"])
    shown = capsys.readouterr().out.split("from token")[-1].split()
    documents = RowDocuments(str(tmp_path / "set" / "train-00000-of-00002.documents"))
    _, document_S, first_S = documents.documents_of(np.array([1]))
    due = []
    for number, (document, first) in enumerate(zip(document_S, first_S, strict=True), start=1):
        due += [str(number), documents.digests[document].tobytes().hex(), str(first)]
    assert shown == due
