"""Checks a finished corpus for what a user may not want."""

from textmill.pipelines.corpus.decontamination.report import warn_of_targets
from textmill.pipelines.corpus.partition import SOURCE
from textmill.pipelines.corpus.rule_warnings import warn_of
from textmill.pipelines.corpus.short_pages import warn_of_hosts
from textmill.pipelines.readers.corpus_files import read_hosts
from textmill.pipelines.readers.page_rights import RIGHTS
from textmill.schemas.errors import Caution, flag
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.corpus_metadata import FILLED
from textmill.schemas.format.manifest import DECONTAMINATION


def warnings_of(corpus: Corpus) -> list[Caution]:
    """Warnings about rules that remove too much, texts not searched for, and empty fields."""
    stats = corpus.stats
    filled = stats.observed.get(FILLED, {})
    kept = [name for name in corpus.schema.columns[2:] if name not in SOURCE]
    empty = [name for name in kept if name not in filled and name not in RIGHTS]
    empty = empty if stats.total().documents else []
    warnings = warn_of(stats.funnel, stats.observed)
    if corpus.lists(DECONTAMINATION):
        warnings += warn_of_targets(corpus.read(DECONTAMINATION), corpus.schema.parameters)
    warnings += warn_of_hosts(read_hosts(corpus))
    return warnings + [
        Caution(
            f"{flag('keep_fields')}: {name} is missing or empty in all documents: check the "
            "field's name"
        )
        for name in empty
    ]
