"""Texts with datatrove's verdicts and spaCy's words, as tests compare them: made once, and kept.

    PYTHON_WITH_DATATROVE -m tests.benchmarks.scripts.quality_verdicts

writes `tests/pipelines/corpus/rules/verdicts.json.gz`. Texts are drawn from lists of words, lines
and forms below by seed: each rule of Gopher's, C4's and FineWeb's is met from both sides, and words
have all that English has: contractions, abbreviations, numbers, addresses, faces, quotes, dashes.
"""

import gzip
import json
import random
from importlib.metadata import version
from pathlib import Path

PLACE = Path(__file__).parents[2] / "pipelines/corpus/rules/verdicts.json.gz"
TEXTS = 600
WORDS = (
    "the of and to in a is that it was for on are with as his they be at one have this from "
    "had hot but some what there we can out other were all your when up use word how said "
    "an each she which do their time if will way about many then them would write like so "
    "these her long make thing see him two has look more day could go come did my sound no "
    "most number who over know water than call first people may down side been now find "
    "extraordinarily misunderstanding lighthouse"
).split()
FORMS = (
    "don't can't I'm we've you'll he'd cannot gonna y'all o'clock rock'n'roll it's Its' "
    "U.S. U.K. Mr. Mrs. Dr. e.g. i.e. etc. a.m. p.m. No. vs. Jan. Inc. 3.14 1,000 50% $20 "
    "£5 20€ 10:30 1990s '90s 2nd 100km 5'11\" well-known state-of-the-art e-mail x-ray "
    "and/or either/or (see) [1] [edit] [citation needed] {x} <b> http://example.com/a?b=1 "
    "www.example.org me@example.com #tag ## # @user C++ C# .NET node.js file.txt a_b "
    "snake_case CamelCase ALLCAPS café naïve Zürich señor 日本語 слово λόγος -- — – … ... .. . "
    ", ; : ! ? !! ?! \" ' “quote” ‘q’ «q» (a) a) * • ° ± × = + / \\ | & ~ ^ ` $ % x² ½ １ ～ ━ "
    "► 、 ។ ៖ § ¶ ‹q› 😀 ♥ ™ 5G 3D A4 B2B :) ;) :-( =D <3 javascript Lorem ipsum cookies"
).split(" ")
LINES = (
    *("* a point of a list", "- another point", "• a third", "1. first", "## Heading", "HEADING"),
    *("Read more...", "and so on…", "Terms of use", "We use cookies on this site.", "Share"),
    *("This website requires JavaScript to be enabled.", "See our privacy policy and use of it."),
    *("Lorem ipsum dolor sit amet is what it says.", "function f() { return 1; }", "", "   "),
    *(
        "He said so.",
        "Is it so?",
        "It is so!",
        '"It was so long ago," she said.',
        "No end of a line",
    ),
)


def draw_text(draw: random.Random) -> str:
    """One text: some lines of some sentences, of which some come again."""
    odd = draw.choice([0.0, 0.02, 0.1, 0.4])
    lines: list[str] = []
    for _ in range(draw.choice([1, 2, 4, 8, 16])):
        kind = draw.random()
        if kind < 0.2:
            lines.append(draw.choice(LINES))
        elif kind < 0.35 and lines:
            lines.append(draw.choice(lines))
        else:
            lines.append(" ".join(draw_sentence(draw, odd) for _ in range(draw.randint(1, 4))))
    text = draw.choice(["\n", "\n", "\n\n", "\r\n", " "]).join(lines)
    if draw.random() < 0.1:
        text = wrap(text, draw.randint(20, 70))
    return text if draw.random() < 0.9 else f"  {text}\n\n"


def draw_extreme(draw: random.Random) -> str:
    """Lines of about 60 words in all, of which a share is one word or sign, at either end too."""
    sign = draw.choice(
        ["#", "...", "…", "•", "-", "a", "extraordinarily", "misunderstandings", "1"]
    )
    share = draw.choice([0.05, 0.1, 0.2, 0.5, 0.95])
    lines = []
    for _ in range(draw.choice([1, 3, 6, 30])):
        words = [draw.choice(WORDS) for _ in range(60)][: max(2, 60 // (len(lines) + 1))]
        words = [sign if draw.random() < share else word for word in words]
        begin, end = (sign + " " if draw.random() < share else "" for _ in range(2))
        lines.append(begin + " ".join(words) + draw.choice([".", "", " " + end.strip()]))
    return "\n".join(lines)


def draw_sentence(draw: random.Random, odd: float) -> str:
    """Some words with a mark at the end; of them a share that are odd."""
    count = draw.choice([2, 5, 9, 14, 20])
    words = [
        draw.choice(FORMS) if draw.random() < odd else draw.choice(WORDS) for _ in range(count)
    ]
    if draw.random() < 0.1:
        words = words[:2] * (count // 2)
    joint = draw.choice([" "] * 9 + ["  "])
    end = draw.choice([".", ".", ".", "!", "?", "...", '."', "", ":"])
    return joint.join([words[0].capitalize(), *words[1:]]) + end


def wrap(text: str, width: int) -> str:
    """Lines of so many characters at most, if words allow."""
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)


def main() -> None:
    """Draws, judges, writes."""
    # Of the environment that has datatrove.
    from datatrove.data import Document  # pyright: ignore[reportMissingImports]
    from datatrove.utils.text import split_into_words  # pyright: ignore[reportMissingImports]

    from tests.benchmarks.scripts.quality_datatrove import FILTERS

    draw = random.Random(26)
    kinds = (draw_text, draw_text, draw_text, draw_extreme)
    texts = list(dict.fromkeys(draw.choice(kinds)(draw) for _ in range(TEXTS)))
    verdicts: dict[str, list] = {name: [] for name in FILTERS} | {"c4 texts": []}
    for text in texts:
        for name, filters in FILTERS.items():
            document, why = Document(text=text, id=""), ""
            for judge in filters:
                kept = judge.filter(document)
                why = why or ("" if kept is True else kept[1])
            verdicts[name].append(why)
            if name == "c4":
                verdicts["c4 texts"].append(document.text)
    made = {
        "by": {package: version(package) for package in ("datatrove", "spacy")},
        "texts": texts,
        "words": [split_into_words(text, "en") for text in texts],
        "verdicts": verdicts,
    }
    PLACE.write_bytes(gzip.compress(json.dumps(made).encode(), mtime=0))


if __name__ == "__main__":
    main()
