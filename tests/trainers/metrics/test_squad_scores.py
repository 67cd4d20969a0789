"""SQuAD's scores on cases worked by hand from the official definition."""

import pytest

from trainers.metrics.questions import best_scores, f1, normalize, squad_scores

# gold answers, prediction, (exact, F1) in version 1.1, in version 2.0
CASES = {
    "the same": (["Denver Broncos"], "Denver Broncos", (1, 1), (1, 1)),
    "case": (["Denver Broncos"], "dENVER bRONCOS", (1, 1), (1, 1)),
    "an article before": (["the Denver Broncos"], "Denver Broncos", (1, 1), (1, 1)),
    "articles inside": (["out of the blue"], "out of a blue", (1, 1), (1, 1)),
    "an article inside a word stays": (["theatre"], "atre", (0, 0), (0, 0)),
    "punctuation": (["$1,000.50!"], "100050", (1, 1), (1, 1)),
    "punctuation joins words": (["well-known"], "well known", (0, 0), (0, 0)),
    "an article set free by punctuation": (['"a" dog'], "dog", (1, 1), (1, 1)),
    "white space": (["New  York\n"], " New York", (1, 1), (1, 1)),
    "punctuation that is not ASCII stays": (["“Roar”"], "Roar", (0, 0), (0, 0)),
    # 1 of 2 words is right, 1 of 2 was found
    "half of the words": (["Super Bowl"], "Super Sunday", (0, 0.5), (0, 0.5)),
    # 2 of 3 right, 2 of 2 found: 2 * 2/3 / (5/3)
    "a word too many": (["Santa Clara"], "in Santa Clara", (0, 0.8), (0, 0.8)),
    # "x x y" and "x z x x": 2 shared; 2/4 right, 2/3 found
    "words that come twice": (["x x y"], "x z x x", (0, 4 / 7), (0, 4 / 7)),
    "no word shared": (["gold"], "silver", (0, 0), (0, 0)),
    "the best of several golds": (["gold", "golden 50", "the Golden"], "golden", (1, 1), (1, 1)),
    # against "1 2": 2/4 right, 2/2 found = 2/3; against "3 4 5": 2/4, 2/3 = 4/7
    "F1 of the best gold": (["1 2", "3 4 5"], "1 2 3 4", (0, 2 / 3), (0, 2 / 3)),
    "nothing said": (["gold"], "", (0, 0), (0, 0)),
    "only an article said": (["gold"], "the", (0, 0), (0, 0)),
    # Both are empty: 1.1 finds no shared word, 2.0 says that both agree.
    "empty on both sides": (["the"], "a!", (1, 0), (1, 1)),
    # 2.0 leaves the gold that is empty once normalized out.
    "an empty gold beside another": (["The", "gold"], "", (1, 0), (0, 0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_scores_by_hand(name, version):
    golds, predicted, old, new = CASES[name]
    found = best_scores(golds, predicted, version)
    assert found == pytest.approx(new if version == "2.0" else old)


def test_questions_without_an_answer():
    assert best_scores([], "", "2.0") == (1, 1)
    assert best_scores([], "the", "2.0") == (1, 1)
    assert best_scores([], "gold", "2.0") == (0, 0)
    with pytest.raises(ValueError):
        best_scores([], "gold", "1.1")


def test_normalized():
    assert normalize("The  Panthers' (defense)!") == "panthers defense"
    assert f1("a b c d", "c e", "1.1") == pytest.approx(0.4)


def test_a_set_of_questions():
    golds = {"1": ["gold"], "2": [], "3": ["Santa Clara"], "4": []}
    predictions = {"1": "the gold", "2": "", "3": "in Santa Clara", "4": "silver"}
    assert squad_scores(golds, predictions, "2.0") == pytest.approx(
        {
            "exact": 50.0,
            "f1": 70.0,
            "total": 4,
            "HasAns_exact": 50.0,
            "HasAns_f1": 90.0,
            "HasAns_total": 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )


def test_what_a_missing_prediction_costs():
    golds = {"1": ["gold"], "2": ["silver"]}
    assert squad_scores(golds, {"1": "gold"}, "1.1") == {"exact": 50.0, "f1": 50.0, "total": 2}
    assert squad_scores(golds, {"1": "gold"}, "2.0")["exact"] == 100.0
    assert squad_scores({"1": ["gold"]}, {}, "2.0") == {"exact": 0.0, "f1": 0.0, "total": 0}
