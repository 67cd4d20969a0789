"""Counts of kept documents by the values of fields."""

import pyarrow as pa
import pytest

from textmill.pipelines.corpus.field_counts import count_fields, licenses

CC = "https://creativecommons.org/"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"{CC}licenses/by/4.0/", {"cc-by-4.0"}),
        (f"{CC}licenses/BY-NC-SA/2.5/no/", {"cc-by-nc-sa-2.5"}),
        (f"{CC}publicdomain/zero/1.0/ {CC}licenses/by-nd/3.0", {"cc-zero-1.0", "cc-by-nd-3.0"}),
        (f"{CC}licenses/by-sa-nc/4.0/", {"other"}),
        (f"{CC}licenses/by/4.05/", {"other"}),
        ("/terms mit", {"other"}),
        ("", set()),
    ],
)
def test_names_of_licenses(value, expected):
    assert licenses(value) == expected


def test_documents_are_counted_once_for_each_key():
    columns = {
        "text": ["a", "b", "c"],
        "date": ["2024-05-18T01:58:00Z", "2024-06", "20240101"],
        "robots": ["noai, noindex", "otherbot: noai", "all, nocache, x: y: noarchive"],
        "x_robots_tag": ["", "", ""],
        "tdm_reservation": ["1", "0", "maybe"],
        "license": [f"{CC}licenses/by/4.0/ {CC}licenses/by/4.0/deed", "", "mit"],
        "other": ["1", "2", "3"],
    }
    batch = pa.record_batch({n: pa.array(v, pa.large_string()) for n, v in columns.items()})
    assert count_fields(batch, columns) == {
        "documents_by_year": {"2024": 2},
        "documents_by_robots": {"noai": 2, "noindex": 1, "noarchive": 1},
        "documents_by_tdm_reservation": {"1": 1, "0": 1},
        "documents_by_license": {"cc-by-4.0": 1, "other": 1},
        "documents_with_field": {
            **{"text": 3, "date": 3, "robots": 3, "x_robots_tag": 0, "tdm_reservation": 3},
            **{"license": 2, "other": 3},
        },
    }
    assert count_fields(batch, ["text"]) == {"documents_with_field": {"text": 3}}
    assert count_fields(batch.slice(0, 0), ["date"]) == {"documents_with_field": {"date": 0}}
    assert count_fields(batch, []) == {}
