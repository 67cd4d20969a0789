"""What inspect_shards prints: a row, tokens, or rows that hold a text."""

from rich.text import Text

from pipelines.host.console import Console
from pipelines.inspection.options import InspectOptions
from pipelines.inspection.row_search import search_rows
from pipelines.inspection.set_tables import set_tables, token_tables
from pipelines.inspection.show_row import SEGMENT_STYLES, find_split, show_row, token_texts
from pipelines.writers.token_counts import read_token_counts
from schemas.commands.terminal import number_of
from schemas.sidecar import SetInfo, read_set
from schemas.stores.set_cache import Cache, default_directory

_NOTHING_FOUND = 1  # exit code, as grep's


def show_sets(options: InspectOptions) -> int:
    """Prints what is asked for; gives the exit code."""
    cache = Cache(options.cache_dir or default_directory(), options.cache_gigabytes)
    info = read_set(options.directory, cache, follow_links=options.follow_links)
    console = Console()
    if options.search is not None:
        return _print_search(info, options.search, options, console)
    if options.stats:
        shown = token_tables(read_token_counts(info), token_texts(info))
    else:
        shown = show_row(info, options.split, options.row)
    for renderable in (*set_tables(info), *shown):
        console.print(renderable)
    return 0


def _print_search(info: SetInfo, search: str, options: InspectOptions, console: Console) -> int:
    """Prints rows that hold a text as they are found; gives the exit code, as grep's."""
    splits = sorted(info.schema.splits)
    if options.split is not None:
        splits = [find_split(info, options.split)]
    texts, found, times = token_texts(info), 0, 0
    for split in splits:
        for hit in search_rows(info, split, search, texts):
            if found == options.limit > 0:
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
    rows = sum(info.stats.split(split).rows for split in splits)
    console.print(f"{found:,} of {number_of(rows, 'row')}, {number_of(times, 'time')}")
    return 0 if found else _NOTHING_FOUND
