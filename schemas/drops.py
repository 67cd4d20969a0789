"""Why documents are left out: one table of reasons, which counts, stats.json and printers share.

Counts are `dropped: {reason: number}` everywhere. A reason without a row is that of a reader or a
task which refused a document, such as not_utf8; or of a family of filters, by whose name it begins:
`filter:spam` of the user's function, `gopher:min_words`. Documents read = kept + all that were
dropped. What filters count besides is `observed`. Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import Callable, Collection, Dict, Iterable, List, Mapping, Sequence, Tuple

from schemas.errors import DataError
from schemas.typed_json import quote

FILTERED, REFUSED = "filtered", "refused"
# Of filters, without a row a reason.
FAMILIES = ("filter", "language", "gopher", "c4", "fineweb", "contaminated")
Observed = Dict[str, Dict[str, int]]  # section to key to number: {"language": {"nb": 3}}
MOST = 1 << 53  # of a count: what other languages' numbers hold


@dataclass(frozen=True)
class Drop:
    """A reason for which documents are left out.

    Attributes:
      name: in counts, {"held_out": 30}, and in stats.json.
      title: of the line where people read the number; reasons of one title share a line.
      by_shard: whether it is counted shard by shard, in a field of its own in stats.json. Others
        are counted where documents are read, in documents_rejected.
      words: that follow the number; "" for the reason's name.
      color: in the report's flow of documents.
      of_flag: whether only a flag makes it happen: its field is left out where it is 0.
    """

    name: str
    title: str
    by_shard: bool = False
    words: str = ""
    color: str = "red"
    of_flag: bool = False


DROPS = {
    drop.name: drop
    for drop in (
        Drop("duplicates", "duplicates", True, "dropped", "amber"),
        Drop("held_out", "held out", True, "that a given evaluation split has", "violet"),
        Drop("near_duplicates", "near duplicates", True, "dropped", "amber", True),
        Drop("held_out_near", "held out", True, "near one of an evaluation split", "violet", True),
        Drop("min_chars", FILTERED),
        Drop("max_chars", FILTERED),
        Drop("min_words", FILTERED),
        Drop("max_repetition", FILTERED),
    )
}
BY_SHARD = tuple(drop for drop in DROPS.values() if drop.by_shard)


def mark_of(reason: str) -> int:
    """The number of a reason that has a row, from 1 on."""
    return list(DROPS).index(reason) + 1


def drop_of(reason: str) -> Drop:
    """The row of a reason; of one that has none, what can be said of it."""
    of_family = reason.partition(":")[0] in FAMILIES
    return DROPS.get(reason) or Drop(reason, FILTERED if of_family else REFUSED)


def in_order(reasons: Iterable[str]) -> List[str]:
    """Reasons as their rules judge: those before the shuffle by table and family, then the others.

    The user's function, the first family, is asked last.
    """
    rows, families = list(DROPS), (*FAMILIES[1:], FAMILIES[0])

    def place(reason: str) -> Tuple[bool, bool, int, str]:
        family = reason.partition(":")[0]
        by_shard = drop_of(reason).by_shard
        if reason in DROPS:
            return by_shard, False, rows.index(reason), reason
        return by_shard, True, families.index(family) if family in families else -1, reason

    return sorted(reasons, key=place)


def add_counts(counts: Dict[str, int], more: Mapping[str, int]) -> None:
    """Adds counts by name, in place; those of 0 are left out."""
    for name, count in more.items():
        if count:
            counts[name] = counts.get(name, 0) + count


def total_counts(*parts: Mapping[str, int]) -> Dict[str, int]:
    """Adds counts by name, without those of 0."""
    counts: Dict[str, int] = {}
    for part in parts:
        add_counts(counts, part)
    return counts


def add_observed(total: Observed, more: Mapping[str, Mapping[str, int]]) -> None:
    """Adds counts by section and name, in place; those of 0 are left out."""
    for section, counts in more.items():
        add_counts(total.setdefault(section, {}), counts)


def total_observed(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Observed:
    """Adds counts by section and name."""
    total: Observed = {}
    for part in parts:
        add_observed(total, part)
    return total


def are_counts(counts: Collection[int]) -> bool:
    """Whether all of them are counts."""
    return not counts or (min(counts) >= 0 and max(counts) < MOST)


def check_counts(counts: Mapping[str, int]) -> None:
    """Refuses numbers that are no counts; names the first."""
    if not are_counts(counts.values()):
        name = next(name for name, count in counts.items() if not 0 <= count < MOST)
        raise DataError(f"{name} is {quote(counts[name])}: a count is at least 0, and below 2**53")


def describe_dropped(
    dropped: Mapping[str, float],
    always: Sequence[str] = (),
    write: Callable[[Drop, float], str] = lambda drop, number: f"{number:,}",
) -> Dict[str, str]:
    """What became of documents that were left out, a line a title.

        {"duplicates": 7, "too_long": 2, "empty": 1} ->
        {"duplicates": "7 dropped", "refused": "1 empty, 2 too_long"}

    Args:
      dropped: reason to number.
      always: titles that have a line even where there is nothing to say.
      write: puts the number of a reason into words.
    """
    order = list(dict.fromkeys(drop.title for drop in DROPS.values())) + [REFUSED]
    lines: Dict[str, List[str]] = {title: [] for title in order}
    for reason, number in sorted(dropped.items()):
        drop = drop_of(reason)
        if number:
            lines[drop.title].append(f"{write(drop, number)} {drop.words or reason}")
    return {
        title: ", ".join(told) or "none" for title, told in lines.items() if told or title in always
    }
