"""Shows a row of a shard set as text, its counts, rows that hold a text, what differs from another.

`python -m pipelines.inspect_shards DIR`; see --help.
"""

import sys

import tyro

from pipelines.host.console import Console
from pipelines.inspection.options import InspectOptions
from pipelines.inspection.set_tables import set_tables
from pipelines.inspection.show_row import show_row
from pipelines.inspection.show_sets import print_diff, print_search, show_tokens
from schemas.entry import run_entry
from schemas.set_cache import Cache, default_directory
from schemas.sidecar import read_set


def main(argv: list[str]) -> None:
    """Shows what a command line asks for."""
    options = tyro.cli(
        InspectOptions, prog="python -m pipelines.inspect_shards", args=argv, use_underscores=True
    )
    cache = Cache(options.cache_dir or default_directory(), options.cache_gigabytes)
    links = options.follow_links
    info = read_set(options.directory, cache, follow_links=links)
    console = Console()
    if options.search is not None:
        split, limit = options.split, options.limit
        sys.exit(print_search(info, options.search, console, split=split, limit=limit))
    if options.diff is not None:
        sys.exit(print_diff(info, read_set(options.diff, cache, follow_links=links), console))
    shown = show_tokens(info) if options.stats else show_row(info, options.split, options.row)
    for renderable in (*set_tables(info), *shown):
        console.print(renderable)


if __name__ == "__main__":
    run_entry(main)
