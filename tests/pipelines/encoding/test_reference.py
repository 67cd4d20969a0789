"""The reference itself."""

import pyarrow as pa
import pytest
from tokenizers import Regex, pre_tokenizers

from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.encoding.reference import ReferenceBackend
from textmill.schemas.errors import DataError


def test_a_runaway_pattern_ends_in_an_error():
    tokenizer = trained_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    with pytest.raises(DataError, match="pattern"):
        ReferenceBackend(tokenizer).encode(pa.array(["a" * 40 + "!"], pa.large_string()))
