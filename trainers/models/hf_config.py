"""config.json of Hugging Face's models: what those of encoders and of decoders have in common.

What a config.json leaves out is as in transformers; what it asks for and is not built here ends in
a UsageError, and a value that is not of its type in a DataError. They name a `place`, such as
"--init_from=DIR".
"""

from typing import Any, Dict, Iterable, Mapping, NamedTuple, get_type_hints

from schemas.errors import DataError, UsageError
from schemas.typed_json import quote

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
ROLES = ("bos", "eos", "pad")


class Key(NamedTuple):
    """A field of a configuration in Hugging Face's config.json.

    Attributes:
      ours: the field.
      theirs: the key.
      absent: the field where config.json leaves the key out, as in transformers; or a function
        that makes it of the fields of the keys before.
      is_opposite: whether theirs is true where ours is false.
    """

    ours: str
    theirs: str
    absent: Any
    is_opposite: bool = False

    def turn(self, value: Any) -> Any:
        """A value of theirs as ours, or the other way round."""
        return not value if self.is_opposite else value


def complete(given: Mapping[str, Any], keys: Iterable[Key]) -> Dict[str, Any]:
    """Adds to the fields that are given what a model with these keys has where nothing is said."""
    values = dict(given)
    for key in keys:
        if key.ours not in values:
            values[key.ours] = key.absent(values) if callable(key.absent) else key.absent
    return {"embedding_size": values["hidden_size"], **values}


def read_fields(
    found: Mapping[str, Any], config_class: type, families: Mapping[str, Any], place: str
) -> Dict[str, Any]:
    """The fields of a configuration that config.json says, or transformers where it does not."""
    family = found.get("model_type")
    if not isinstance(family, str) or family not in families:
        raise UsageError(
            f"{place}: config.json says model_type {quote(family)}, and {', '.join(families)} are "
            "built here: give weights of one of these"
        )
    row = families[family]
    for name, ours in row.fixed.items():
        if found.get(name) not in (None, ours):
            raise UsageError(f"{place}: its {name} is {quote(found[name])}; here it is {ours!r}")
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
                f"{place}: config.json says that {key.theirs} is {quote(value)}, and it has to be "
                f"{_KINDS[kind]}: copy it again"
            )
        values[key.ours] = key.turn(value)
    return complete(values, row.keys)


def make_config(config_class: Any, values: Mapping[str, Any], place: str) -> Any:
    """A configuration of these fields; an error about them names the place."""
    try:
        return config_class(**values)
    except UsageError as error:
        raise UsageError(f"{place}: config.json: {error}") from None


def common_json(config: Any, row: Any, special_ids: Mapping[str, int]) -> Dict[str, Any]:
    """What config.json of encoders and decoders has alike."""
    return {
        "model_type": config.family,
        **{key.theirs: key.turn(getattr(config, key.ours)) for key in row.keys},
        **{f"{role}_token_id": special_ids.get(role) for role in ROLES},
        "initializer_range": 0.02,
        "dtype": "float32",
    }
