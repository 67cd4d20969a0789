"""Measures the rules on a sample, for a plan: what they cost, and which documents they leave."""

from collections import Counter
from dataclasses import replace

from textmill.pipelines.corpus.decontamination.finders import find_holders
from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.decontamination.targets import find_targets
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.forget_documents import filter_others
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.readers.forget import REASON
from textmill.pipelines.runners.plan import Clock
from textmill.schemas.format.digests import read_digests
from textmill.schemas.format.drops import total_counts


def clean_sample(
    options: CorpusOptions, pieces: list[Documents], clock: Clock, dropped: Counter[str]
) -> list[Documents]:
    """Applies the rules to pieces, and then searches for evaluation texts, with the run's order."""
    filters, flags = options.filters, options.filters.decontamination
    listed = read_digests(options.forget, "forget") if options.forget else None
    bare = replace(filters, decontamination=Decontamination(), keep_rejects=False)
    rules = load_filters(bare)
    rules.apply(pieces[0])  # compiles
    with clock.part("rules"):
        others = [filter_others(rules, piece, listed) for piece in pieces]
    filtered = [some.filtered for some in others]
    dropped[REASON] += sum(some.statistics.documents_read for some in others)
    dropped.update(total_counts(*(some.dropped for some in filtered)))
    left = [some.documents for some in filtered]
    if not flags.decontaminate:
        return left
    finder = Finder(find_targets(filters, lambda _: None))
    search = load_filters(Filters(decontamination=flags))
    plain = [replace(some, empty=0, rejects=(), unusable={}) for some in left]
    search.apply(plain[0], finder)
    with clock.part("decontamination"):
        searched = [search.apply(some, finder) for some in plain]
    dropped.update(total_counts(*(some.dropped for some in searched)))
    if flags.decontaminate_max_documents:  # a job before reads and cleans the input, too
        with clock.part("decontamination"):
            for some in left:
                find_holders(finder, some.text)
        before = clock.cpu["reading"] + clock.cpu["rules"]
        clock.add("decontamination", before, before * clock.slowdown)
    return [some.documents for some in searched]
