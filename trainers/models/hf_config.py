"""config.json of Hugging Face's models, to and from our configurations.

What a config.json leaves out is as in transformers; what it asks for and is not built here ends in
a UsageError, and a value that is not of its type in a DataError. They name a `place`, such as
"--init_from=DIR".
"""

from typing import Any, Dict, Mapping, Sequence, Tuple, get_type_hints

from schemas.errors import DataError, UsageError
from schemas.typed_json import shown
from trainers.models import decoder, encoder
from trainers.models.decoder import DecoderConfig
from trainers.models.encoder import EncoderConfig
from trainers.models.modules import complete

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_ROLES = ("bos", "eos", "pad")


def encoder_from_json(
    found: Mapping[str, Any], *, classes: Sequence[str] = (), place: str
) -> EncoderConfig:
    """The encoder that a config.json describes, with a head for these classes."""
    values = _fields(found, EncoderConfig, encoder.FAMILIES, place)
    if "position_offset" in values:  # theirs are the padding's id, and all rows of the table
        values["position_offset"] += 1
        values["max_positions"] -= values["position_offset"]
    return _made(EncoderConfig, {**values, "classes": tuple(classes)}, place)


def published_classes(found: Mapping[str, Any], *, place: str) -> Tuple[str, ...]:
    """Names of the classes that a published encoder tells apart, if it is a classifier."""
    if "SequenceClassification" not in str(found.get("architectures")):
        return ()
    named = found.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    names = named if isinstance(named, dict) else {}
    classes = [names.get(str(number)) for number in range(len(names))]
    texts = tuple(name for name in classes if isinstance(name, str))
    if not texts or len(texts) < len(names):
        raise DataError(
            f"{place}: config.json says that id2label is {shown(named)}, and it has to name every "
            'class by its number: {"0": "no", "1": "yes"}'
        )
    return texts


def encoder_to_json(config: EncoderConfig, special_ids: Mapping[str, int]) -> Dict[str, Any]:
    """The config.json that transformers opens as this model; roles to ids are the contract's."""
    row = encoder.FAMILIES[config.family]
    head = "ForSequenceClassification" if config.classes else "ForMaskedLM"
    found = {
        **_common(config, row, special_ids),
        "architectures": [row.class_name + head],
        "max_position_embeddings": config.position_rows,
    }
    if config.family == "roberta":  # transformers derives positions from this id
        found["pad_token_id"] = config.position_offset - 1
    if config.classes:
        found["problem_type"] = "single_label_classification"
        found["id2label"] = {str(number): name for number, name in enumerate(config.classes)}
        found["label2id"] = {name: number for number, name in enumerate(config.classes)}
    return found


def decoder_from_json(found: Mapping[str, Any], *, dropout: float, place: str) -> DecoderConfig:
    """The decoder that a config.json describes, but for its dropout."""
    values = _fields(found, DecoderConfig, decoder.FAMILIES, place)
    if not values.get("norm_first", True):  # nothing follows post-norm layers, whatever is said
        values["final_norm"] = False
    always = decoder.FAMILIES[values["family"]].always
    return _made(DecoderConfig, {**values, **always, "dropout": dropout}, place)


def decoder_to_json(
    config: DecoderConfig, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
) -> Dict[str, Any]:
    """The config.json that transformers opens as this model; prefix_ids is a key of our own."""
    row = decoder.FAMILIES[config.family]
    found = {
        **_common(config, row, special_ids),
        **dict.fromkeys(row.dropout_keys, config.dropout),
        "architectures": [row.class_name],
        "prefix_ids": [int(number) for number in prefix_ids],
    }
    if prefix_ids:
        found["bos_token_id"] = found["prefix_ids"][0]
    return found


def decoder_ids(found: Mapping[str, Any], *, place: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """What a published decoder's texts begin with, and which end them, by its config.json."""
    row = decoder.FAMILIES[found["model_type"]]
    bos, eos = (found.get(f"{role}_token_id", n) for role, n in zip(_ROLES, row.ids))
    ids = []
    for value in (found.get("prefix_ids", bos if row.begins_with_bos else None), eos):
        given = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(number) is int for number in given):
            raise DataError(f"{place}: config.json names a token {shown(value)}, which is no id")
        ids.append(tuple(given))
    return ids[0], ids[1]


def _fields(
    found: Mapping[str, Any], config_class: type, families: Mapping[str, Any], place: str
) -> Dict[str, Any]:
    """The fields of a configuration that config.json says, or transformers where it does not."""
    family = found.get("model_type")
    if not isinstance(family, str) or family not in families:
        raise UsageError(
            f"{place}: config.json says model_type {shown(family)}, and {', '.join(families)} are "
            "built here: give weights of one of these"
        )
    row = families[family]
    for name, ours in row.fixed.items():
        if found.get(name) not in (None, ours):
            raise UsageError(f"{place}: its {name} is {shown(found[name])}; here it is {ours!r}")
    kinds = get_type_hints(config_class)
    values: Dict[str, Any] = {"family": family}
    for key in row.keys:
        value, kind = found.get(key.theirs), kinds[key.ours]
        if value is None and (key.theirs not in found or callable(key.absent)):
            continue
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise DataError(
                f"{place}: config.json says that {key.theirs} is {shown(value)}, and it has to be "
                f"{_KINDS[kind]}: copy it again"
            )
        values[key.ours] = key.turn(value)
    return complete(values, row.keys)


def _made(config_class: Any, values: Mapping[str, Any], place: str) -> Any:
    try:
        return config_class(**values)
    except UsageError as error:
        raise UsageError(f"{place}: config.json: {error}") from None


def _common(config: Any, row: Any, special_ids: Mapping[str, int]) -> Dict[str, Any]:
    """What config.json of encoders and decoders has alike."""
    return {
        "model_type": config.family,
        **{key.theirs: key.turn(getattr(config, key.ours)) for key in row.keys},
        **{f"{role}_token_id": special_ids.get(role) for role in _ROLES},
        "initializer_range": 0.02,
        "dtype": "float32",
    }
