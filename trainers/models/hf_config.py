"""config.json of Hugging Face's models, to and from our configurations.

What a config.json leaves out is as in transformers; what it asks for and is not built here is
refused. No framework; Python 3.8 syntax.
"""

from typing import Any, Dict, Iterable, Mapping, Sequence, Tuple, Type, get_type_hints

from schemas.errors import DataError, UsageError
from schemas.typed_json import shown
from trainers.models import decoder, encoder
from trainers.models.decoder import DecoderConfig
from trainers.models.encoder import EncoderConfig
from trainers.models.modules import Key

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_ROLES = ("bos", "eos", "pad")


def encoder_from_json(
    found: Mapping[str, Any], *, classes: Sequence[str] = (), place: str
) -> EncoderConfig:
    """The encoder that a config.json describes.

    Args:
      found: its content.
      classes: of the head; without any, the head is that of a masked language model.
      place: to name in errors, such as "--init_from=DIR".

    Raises:
      UsageError: it is no encoder, or has a switch that ours has not.
      DataError: a value is of another type than it has to be.
    """
    family = _family(found, encoder.FAMILIES, place)
    _refuse_other(found, encoder.FIXED, place)
    found = {**encoder.FAMILIES[family].absent, **found}
    values = _fields(found, _encoder_keys(family), EncoderConfig, place)
    offset = _typed(found, "pad_token_id", 0, int, place) + 1 if family == "roberta" else 0
    values["max_positions"] -= offset
    values.setdefault("embedding_size", values["hidden_size"])
    if values["classifier_dropout"] is None:
        values["classifier_dropout"] = values["dropout"]
    fixed = {"family": family, "position_offset": offset, "classes": tuple(classes)}
    return _made(EncoderConfig, {**values, **fixed}, place)


def encoder_to_json(config: EncoderConfig, special_ids: Mapping[str, int]) -> Dict[str, Any]:
    """The config.json that transformers opens as this model.

    Args:
      config: of the model.
      special_ids: role to id, as in the contract.
    """
    head = "ForSequenceClassification" if config.classes else "ForMaskedLM"
    class_name = encoder.FAMILIES[config.family].class_name + head
    found = _to_json(config, class_name, _encoder_keys(config.family), special_ids)
    found["max_position_embeddings"] = config.position_rows
    if config.family == "roberta":  # transformers derives positions from this id
        found["pad_token_id"] = config.position_offset - 1
    if config.classes:
        found["problem_type"] = "single_label_classification"
        found["id2label"] = {str(number): name for number, name in enumerate(config.classes)}
        found["label2id"] = {name: number for number, name in enumerate(config.classes)}
    return found


def decoder_from_json(found: Mapping[str, Any], *, dropout: float, place: str) -> DecoderConfig:
    """The decoder that a config.json describes.

    Args:
      found: its content.
      dropout: for training; theirs is not taken over.
      place: to name in errors, such as "--init_from=DIR".

    Raises:
      UsageError: it is no decoder, or has a switch that ours has not.
      DataError: a value is of another type than it has to be.
    """
    family = _family(found, decoder.FAMILIES, place)
    row = decoder.FAMILIES[family]
    _refuse_other(found, row.fixed, place)
    values = _fields(found, row.keys, DecoderConfig, place)
    if values["intermediate_size"] is None:
        values["intermediate_size"] = 4 * values["hidden_size"]
    if values.get("embedding_size") is None:
        values["embedding_size"] = values["hidden_size"]
    if not values.get("norm_first", True):  # nothing follows post-norm layers, whatever is said
        values["final_norm"] = False
    return _made(DecoderConfig, {"family": family, "dropout": dropout, **values}, place)


def decoder_to_json(
    config: DecoderConfig, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
) -> Dict[str, Any]:
    """The config.json that transformers opens as this model.

    Args:
      config: of the model.
      special_ids: role to id, as in the contract.
      prefix_ids: what every document of the training set began with; kept as a key of our own.
    """
    row = decoder.FAMILIES[config.family]
    found = _to_json(config, row.class_name, row.keys, special_ids)
    found.update(dict.fromkeys(row.dropout_keys, config.dropout))
    found["prefix_ids"] = [int(number) for number in prefix_ids]
    if prefix_ids:
        found["bos_token_id"] = found["prefix_ids"][0]
    return found


def decoder_ids(found: Mapping[str, Any], *, place: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """What a published decoder's texts begin with, and which tokens end them.

    Args:
      found: config.json; OPT's eos may be a list.
      place: to name in errors, such as "--checkpoint=DIR".

    Raises:
      DataError: they are no ids.
    """
    row = decoder.FAMILIES[found["model_type"]]
    bos, eos = (found.get(f"{role}_token_id", n) for role, n in zip(_ROLES, row.ids))
    prefix = found.get("prefix_ids", bos if row.begins_with_bos else None)
    for value in (prefix, eos):
        if not all(type(number) is int for number in _listed(value)):
            raise DataError(f"{place}: config.json names a token {shown(value)}, which is no id")
    return _listed(prefix), _listed(eos)


def _listed(value: Any) -> Tuple[Any, ...]:
    """None -> (); 2 -> (2,); [2, 50118] -> (2, 50118)."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _encoder_keys(family: str) -> Tuple[Key, ...]:
    return (*encoder.KEYS, *((encoder.EMBEDDING_KEY,) if family == "electra" else ()))


def _family(found: Mapping[str, Any], families: Iterable[str], place: str) -> str:
    for family in families:
        if found.get("model_type") == family:
            return family
    raise UsageError(
        f"{place}: config.json says model_type {shown(found.get('model_type'))}, and "
        f"{', '.join(families)} are built here: give weights of one of these"
    )


def _refuse_other(found: Mapping[str, Any], fixed: Mapping[str, Any], place: str) -> None:
    for name, ours in fixed.items():
        if found.get(name) not in (None, ours):
            raise UsageError(
                f"{place}: its {name} is {shown(found[name])}; only {ours!r} is built here"
            )


def _fields(
    found: Mapping[str, Any], keys: Iterable[Key], cls: Type[Any], place: str
) -> Dict[str, Any]:
    """The fields of a configuration that config.json says, by our names."""
    kinds, values = get_type_hints(cls), {}
    for key in keys:
        value = _typed(found, key.theirs, key.absent, kinds[key.ours], place)
        values[key.ours] = not value if key.is_opposite else value
    return values


def _typed(found: Mapping[str, Any], name: str, absent: Any, kind: type, place: str) -> Any:
    value = found.get(name, absent)
    if value is None and absent is None:
        return None
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise DataError(
            f"{place}: config.json says that {name} is {shown(value)}, and it has to be "
            f"{_KINDS[kind]}: copy it again"
        )
    return value


def _made(cls: Type[Any], values: Mapping[str, Any], place: str) -> Any:
    try:
        return cls(**values)
    except UsageError as error:
        raise UsageError(f"{place}: config.json: {error}") from None


def _to_json(
    config: Any, class_name: str, keys: Iterable[Key], special_ids: Mapping[str, int]
) -> Dict[str, Any]:
    values = {key.theirs: getattr(config, key.ours) for key in keys}
    values.update({k.theirs: not getattr(config, k.ours) for k in keys if k.is_opposite})
    return {
        "architectures": [class_name],
        "model_type": config.family,
        **values,
        **{f"{role}_token_id": special_ids.get(role) for role in _ROLES},
        "initializer_range": 0.02,
        "dtype": "float32",
    }
