"""Tables for a terminal: facts by name, columns of counts, bars. Control characters are escaped."""

from collections.abc import Iterable, Mapping

from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from schemas.commands.terminal import visible

_BAR = 40  # characters of the longest bar


def columns_table(*columns: str, justify: JustifyMethod = "left") -> Table:
    """Makes an empty table without borders; it has a header if columns are named.

    Args:
      columns: names of columns; the first is left-justified.
      justify: justification of the others.
    """
    table = Table(box=None, show_header=bool(columns))
    for number, name in enumerate(columns):
        table.add_column(name, justify=justify if number else "left", overflow="fold")
    return table


def facts_table(facts: Mapping[str, str], *, title: str | None = None, boxed: bool = True) -> Table:
    """A table of names and values; long values are wrapped, so that paths can be copied whole."""
    lines = box.HEAVY_HEAD if boxed else None
    table = Table(box=lines, show_header=False, title=title, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(visible(name)), Text(visible(value)))
    return table


def bars_table(rows: Iterable[tuple[str, int, str]]) -> Table:
    """A table of names, counts, bars in proportion to the highest count, and notes."""
    rows, table = list(rows), columns_table()
    for justify in ("right", "right", "left", "right"):
        table.add_column(justify=justify, no_wrap=True)
    highest = max((count for _, count, _ in rows), default=0) or 1
    for name, count, note in rows:
        bar = "█" * round(_BAR * count / highest)
        table.add_row(Text(visible(name)), f"{count:,}", bar, note)
    return table
