"""Figures worked by hand."""

import re

import numpy as np
import pytest

from pipelines.inspection.report.flow_and_zipf import compact, flow, zipf
from pipelines.inspection.report.page import load_macros


def test_a_flow_keeps_its_widths_and_its_order():
    links = [("read", "train", 600), ("read", "rejected", 0), ("read", "validation", 400)]
    laid = flow(links, {"train": "blue"})
    assert laid is not None
    assert [(n.name, n.count, n.share, n.kind) for n in laid.left] == [("read", 1000, 1.0, "")]
    assert [(n.name, n.count, n.share, n.kind) for n in laid.right] == [
        ("train", 600, 0.6, "blue"),
        ("validation", 400, 0.4, ""),
    ]
    train, validation = laid.right
    assert train.height / validation.height == pytest.approx(1.5)
    assert train.top + train.height < validation.top
    # The ribbons leave the left bar one below the other.
    first, second = (list(map(float, re.findall(r"[\d.]+", path))) for path, _ in laid.ribbons)
    assert first[1] == pytest.approx(laid.left[0].top, abs=0.05)
    assert second[1] == pytest.approx(laid.left[0].top + train.height, abs=0.1)


def test_labels_of_tiny_flows_do_not_overlap():
    links = [("read", "train", 10**9)] + [("read", f"reason {n}", 1) for n in range(6)]
    laid = flow(links, {})
    assert laid is not None
    middles = [node.middle for node in laid.right]
    assert min(np.diff(middles)) >= 40 and middles[-1] < laid.height
    assert all(node.height >= 1.5 for node in laid.right)
    assert flow([("read", "train", 0)], {}) is flow([], {}) is None, "nothing flows"


def test_columns_are_shares_of_the_highest():
    def heights(*counts):
        drawn = load_macros().columns_of([("a", count, "title", "blue") for count in counts])
        return [float(height) for height in re.findall(r'height: ([\d.]+)%"', drawn)]

    assert heights(5, 0, 20) == [25, 0, 100]
    assert heights(0) == [0]


def test_labels_are_turned_where_there_is_no_room():
    def drawn(columns):
        return load_macros().columns_of([(f"{n:05}", 1, "title", "") for n in range(columns)])

    assert "turned" not in drawn(10) and drawn(10).count("<span>") == 10
    assert "turned" in drawn(11) and drawn(11).count("<span>") == 11
    assert drawn(60).count("<span>") == 20  # each third


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.5])
def test_the_line_through_a_power_law_is_its_exponent(exponent):
    counts = np.round(1e9 / np.arange(1, 20_001) ** exponent).astype(np.int64)
    curve = zipf(np.random.default_rng(0).permutation(counts))
    assert curve is not None
    assert curve.exponent == pytest.approx(exponent, abs=0.01)
    places = [tuple(map(float, point.split(","))) for point in curve.points.split()]
    assert places[0] == (0, 0) and places[-1][0] == 100
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in places)
    assert len(places) < 200
    assert [label for _, label in curve.across] == ["1", "10", "100", "1k", "10k"]


def test_too_few_tokens_have_no_line():
    for counts in ([0, 1], [7], [3, 3, 3, 3]):
        curve = zipf(np.array(counts))
        assert curve is not None and curve.fit == "" and curve.points
    assert zipf(np.zeros(9, np.int64)) is None


def test_numbers_in_few_characters():
    two = {0: "0", 950: "950", 999.6: "1k", 1234: "1.2k", 36_400: "36k", 100_000: "100k"}
    assert {number: compact(number, 2) for number in two} == two
    three = {1234: "1.23k", 36_400: "36.4k", 4_510_382: "4.51M", 12e9: "12G"}
    assert {number: compact(number, 3) for number in three} == three
