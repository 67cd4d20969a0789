"""What inspect_shards prints: a row, tokens, rows that hold a text, what differs."""

from rich.console import RenderableType
from rich.text import Text

from pipelines.host.console import Console
from pipelines.inspection.options import InspectOptions
from pipelines.inspection.row_search import search_rows
from pipelines.inspection.set_diff import set_differences, token_differences
from pipelines.inspection.set_tables import difference_tables, set_tables, token_tables
from pipelines.inspection.show_row import SEGMENT_STYLES, find_split, show_row, token_texts
from pipelines.writers.token_counts import read_token_counts
from schemas.set_cache import Cache, default_directory
from schemas.sidecar import SetInfo, read_set
from schemas.terminal import number_of

_NOTHING_FOUND = _DIFFERENT = 1  # exit codes, as grep's and diff's


def show_sets(options: InspectOptions) -> int:
    """Prints what is asked for; gives the exit code."""
    cache = Cache(options.cache_dir or default_directory(), options.cache_gigabytes)
    links = options.follow_links
    info = read_set(options.directory, cache, follow_links=links)
    console = Console()
    if options.search is not None:
        split, limit = options.split, options.limit
        return _print_search(info, options.search, console, split=split, limit=limit)
    if options.diff is not None:
        return _print_diff(info, read_set(options.diff, cache, follow_links=links), console)
    shown = _show_tokens(info) if options.stats else show_row(info, options.split, options.row)
    for renderable in (*set_tables(info), *shown):
        console.print(renderable)
    return 0


def _show_tokens(info: SetInfo) -> list[RenderableType]:
    """Shows how often tokens occur, of a set that counted them."""
    return token_tables(read_token_counts(info), token_texts(info))


def _print_search(
    info: SetInfo, search: str, console: Console, *, split: str | None, limit: int
) -> int:
    """Prints rows that hold a text as they are found; gives the exit code, as grep's.

    Args:
      info: the set.
      search: the text.
      console: to print on.
      split: to search; None for all.
      limit: of rows that are printed; 0 for none.
    """
    splits = sorted(info.schema.splits) if split is None else [find_split(info, split)]
    texts, found, times = token_texts(info), 0, 0
    for each in splits:
        for hit in search_rows(info, each, search, texts):
            if found == limit > 0:
                console.print(f"and more: these are the first {found:,}, --limit=0 shows all")
                return 0
            line = Text(f"{hit.split} {hit.row:,} ", "bold")
            line.append(f"[{hit.segment}] ", SEGMENT_STYLES[hit.segment % 2])
            line.append(hit.before, "not bold").append(hit.found, "bold red")
            line.append(hit.after, "not bold")
            if hit.times > 1:
                line.append(f" ({hit.times} times)", "dim")
            console.print(line, soft_wrap=True)
            found, times = found + 1, times + hit.times
    rows = sum(info.stats.split(each).rows for each in splits)
    console.print(f"{found:,} of {number_of(rows, 'row')}, {number_of(times, 'time')}")
    return 0 if found else _NOTHING_FOUND


def _print_diff(here: SetInfo, there: SetInfo, console: Console) -> int:
    """Prints what differs between two sets; gives the exit code, as diff's."""
    differences = set_differences(here, there)
    if here.schema.tokenizer_sha256 == there.schema.tokenizer_sha256:
        counts = read_token_counts(here), read_token_counts(there)
        if (counts[0] != counts[1]).any():
            differences += token_differences(*counts, token_texts(here))
    if not differences:
        rows = number_of(here.stats.total().rows, "row")
        console.print(f"equal: contract, inputs, counts, and the bytes of {rows}")
        return 0
    for renderable in difference_tables(differences):
        console.print(renderable)
    return _DIFFERENT
