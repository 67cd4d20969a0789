"""Rows worked by hand, as people read them."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.tools.shard_factory import tokenizer_json
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.row_text import (
    Piece,
    TokenTexts,
    row_facts,
    row_pieces,
    sequences,
)
from textmill.schemas.format.features import Feature
from textmill.schemas.format.metadata import Schema


def _schema(*features: Feature, **parameters) -> Schema:
    """A task with these features beside 4 positions of text, as no task has them all."""
    text = Feature("input_ids", "uint16", (4,), ""), Feature("segment_ids", "uint8", (4,), "")
    names = {feature.name: feature for feature in (*text, *features)}
    stub = SimpleNamespace(
        features=tuple(names.values()),
        feature=names.get,
        parameters=parameters,
        static_masking=False,
        holds_documents=False,
        special_ids={},
        all_special_ids=(0, 1, 2, 3, 4),
    )
    return cast(Schema, stub)


ROW = {"input_ids": np.array([5, 6, 7, 2]), "segment_ids": np.array([1, 1, 1, 1])}
TEXTS = TokenTexts(LoadedTokenizer(tokenizer_json(50)))


def test_segments_and_special_tokens_stand_apart():
    row = {"input_ids": np.array([5, 6, 7, 4]), "segment_ids": np.array([1, 1, 2, 2])}
    padded = {name: np.append(values, [0, 0]) for name, values in row.items()}
    assert [(p.segment, p.kind, p.text) for p in row_pieces(padded, _schema(), TEXTS)] == [
        (1, "text", " w5 w6"),
        (2, "text", " w7"),
        (2, "special", "<mask>"),  # it was in the text
        (0, "padding", ""),
    ]


def test_marks_of_places_cut_the_text():
    schema = _schema(
        Feature("loss_weights", "uint8", (4,), ""), Feature("prefix_mask", "uint8", (4,), "")
    )
    row = ROW | {"loss_weights": np.array([0, 0, 1, 1]), "prefix_mask": np.array([1, 1, 0, 0])}
    assert row_pieces(row, schema, TEXTS) == [
        Piece(1, 0, 2, "text", " w5 w6", " w5 w6", ("prefix_mask",)),
        Piece(1, 2, 1, "text", " w7", " w7", ("loss_weights",)),
        Piece(1, 3, 1, "special", "</s>", "</s>", ("loss_weights",)),
    ]
    assert row_facts(row, schema) == {}


def test_a_second_stream_has_segments_of_its_own():
    schema = _schema(
        Feature("target_ids", "uint16", (3,), ""), Feature("target_segment_ids", "uint8", (3,), "")
    )
    row = ROW | {"target_ids": np.array([8, 9, 0]), "target_segment_ids": np.array([1, 2, 0])}
    assert sequences(schema) == {"input_ids": "segment_ids", "target_ids": "target_segment_ids"}
    assert [(p.segment, p.text) for p in row_pieces(row, schema, TEXTS, "target_ids")] == [
        (1, " w8"),
        (2, " w9"),
        (0, ""),
    ]
    assert row_facts(row, schema) == {}


def test_facts_of_a_row():
    schema = _schema(
        Feature("label", "uint16", (), ""),
        Feature("example_id", "uint32", (2,), ""),
        Feature("prompt_length", "uint16", (), ""),
        Feature("scores", "uint8", (99,), ""),
        classes=["neg", "po\x1bs"],
    )
    row = ROW | {
        "label": np.array(1, np.uint16),
        "example_id": np.array([1, 255], np.uint32),
        "prompt_length": np.array(3, np.uint16),
        "scores": np.arange(99, dtype=np.uint8),
    }
    scores = " ".join(map(str, range(99)))[:100] + "…"
    assert row_facts(row, schema) == {
        "label": "1 (po\\x1bs)",
        "example_id": "00000001000000ff",
        "prompt_length": "3",
        "scores": scores,
    }
    nothing = {name: np.zeros_like(values) for name, values in row.items()}
    assert row_facts(nothing, schema) == {"label": "0 (neg)"}
    assert row_facts(nothing, _schema(Feature("label", "uint16", (), ""))) == {"label": "0"}


def test_the_bytes_of_many_tokens_at_once():
    data, bounds = TEXTS.spell(np.array([0, 5, 6, 2], np.uint16))
    assert (data, bounds.tolist()) == (b"<s> w5 w6</s>", [0, 3, 6, 9, 13])
    assert TEXTS.spell(np.zeros(0, np.uint16))[0] == b""
    assert TEXTS.text([7, 50]) == " w7<id 50>", "no token has the id 50"


@pytest.fixture(scope="module")
def byte_level() -> tuple[TokenTexts, dict[bytes, int]]:
    """A tokenizer whose tokens are the 256 bytes; and the id of each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    ids = {}
    for byte in range(256):
        # Two-byte characters reach the bytes that are no character alone.
        text = bytes([byte]).decode() if byte < 128 else chr(byte)
        encoded = tokenizer.encode(text).ids
        ids[text.encode()[-1:]] = encoded[-1]
        ids[text.encode()[:1]] = encoded[0]
    return TokenTexts(LoadedTokenizer(tokenizer.to_str().encode())), ids


def test_text_of_bytes_is_whole_characters_and_nothing_that_commands_a_terminal(byte_level):
    texts, ids = byte_level
    whole = [ids[bytes([byte])] for byte in "Grüße é".encode()]
    assert texts.text(whole) == "Grüße é"
    assert texts.text(whole[:3]) == "Gr\\xc3"
    assert texts.text(whole[3:4]) == "\\xbc"
    text = "a\nb\tc\x1b[31m\x00\r\x7f"
    shown = texts.text([ids[bytes([byte])] for byte in text.encode()])
    assert shown == "a↵b\\tc\\x1b[31m\\x00\\r\\x7f"


def test_word_pieces_get_their_spaces_back():
    vocabulary = {"[UNK]": 0, "mill": 1, "##ing": 2, "text": 3}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    texts = TokenTexts(LoadedTokenizer(tokenizer.to_str().encode()))
    assert texts.text(tokenizer.encode("milling text").ids) == " milling text"
