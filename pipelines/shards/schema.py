"""The schema of a dataset, and the settings of its tokenizer, that a run writes."""

from itertools import chain
from typing import Any

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.encoding.tokenizer_files import DEFAULT
from textmill.pipelines.input_options import InputFlags
from textmill.pipelines.readers.corpus_files import corpus_parameters
from textmill.pipelines.readers.files import expand_lists
from textmill.pipelines.readers.forget import forget_parameters
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.user_filter import filter_parameters
from textmill.pipelines.writers.document_formats import refuse_formats
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.features import is_training, task_features
from textmill.schemas.format.metadata import FORMAT_VERSION, Schema
from textmill.schemas.tokenizers.tokenizer_json import tokenizer_settings
from textmill.schemas.version import VERSION


def schema_of(
    options: BuildOptions, tokenizer: LoadedTokenizer, bytes_of: dict[str, int]
) -> Schema:
    """The schema of the dataset that a run makes.

    Args:
      options: of the run.
      tokenizer: of the run.
      bytes_of: bytes of the inputs, by split; "" if hashes assign documents to splits.

    Raises:
      UsageError: the tokenizer does not fit the task, or a row is too short for the special
        tokens.
    """
    fields = options.settings.schema_fields(tokenizer, options.max_length)
    if fields["mask_copies"] > 1 and not any(map(is_training, options.splitting.shares)):
        raise UsageError(
            f"{flag('mask_copies', fields['mask_copies'])} copies rows of training splits only, "
            f"and none of the splits is one ({', '.join(options.splitting.shares)}): name it train"
        )
    roles = {f"{role.name}_field": role.field for role in options.settings.roles()}
    default = InputFlags().parameters()
    reading = options.reading.parameters().items()
    parameters = {
        "document": options.reading.document,
        **{name: value for name, value in reading if value != default.get(name)},
        **roles,
        **_corpora(options),
        **filter_parameters(options.filter),
        **forget_parameters(options.forget),
        **fields.pop("parameters"),
    }
    schema = Schema(
        format_version=FORMAT_VERSION,
        task=options.task,
        parameters=parameters,
        max_length=options.max_length,
        vocab_size=tokenizer.vocab_size,
        special_ids=dict(tokenizer.special_ids),
        all_special_ids=tuple(tokenizer.all_special_ids),
        tokenizer_sha256=tokenizer.sha256,
        golden=tokenizer.golden,
        splits=options.splitting.shares,
        shards=options.splitting.shards(bytes_of),
        seed=options.seed,
        encoding=options.encoding,
        file_formats=options.formats,
        features=task_features(
            options.task,
            max_length=options.max_length,
            vocab_size=tokenizer.vocab_size,
            max_masked=fields["max_masked"],
            parameters=parameters,
        ),
        code_version=VERSION,
        **fields,
    )
    if schema.holds_documents:
        refuse_formats(schema)
    return schema


def _corpora(options: BuildOptions) -> dict[str, Any]:
    """The fingerprints of the corpora among the inputs."""
    lists = (expand_lists(source.patterns, source.field) for source in options.sources.values())
    return corpus_parameters(chain(*lists), follow_links=options.reading.follow_links)


def tokenizer_config(schema: Schema, tokenizer: LoadedTokenizer) -> dict[str, Any]:
    """The fields of tokenizer_config.json: the tokenizer's own, the rows' length and template."""
    others = dict(tokenizer.settings)
    if schema.row_tokens:
        others["model_max_length"] = schema.max_length
    templates = dict(tokenizer.chat_templates)
    if used := schema.parameters.get("chat_template"):
        templates = {DEFAULT: used}
    if templates.keys() == {DEFAULT}:
        others["chat_template"] = templates[DEFAULT]
    elif templates:
        named = ({"name": name, "template": text} for name, text in sorted(templates.items()))
        others["chat_template"] = list(named)
    return tokenizer_settings(tokenizer.special_tokens, schema.special_ids, **others)
