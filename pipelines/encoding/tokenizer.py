"""`LoadedTokenizer`: text to ragged ids and back, and the meaning of its ids.

numpy and pyarrow, no Beam. Creating one from `json` is cheap, also in a worker: a fast backend
loads when there is enough to encode.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding import kept_tokenizer
from textmill.pipelines.encoding.backends import (
    GOLDEN_TEXTS,
    FastBackend,
    choose_backend,
)
from textmill.pipelines.encoding.patterns import spelt_bytes
from textmill.pipelines.encoding.reference import (
    WORD_TABLE,
    Backend,
    ReferenceBackend,
    Tokenizer,
    encode_each,
    failures_as_data_errors,
)
from textmill.pipelines.encoding.tokenizer_files import (
    COMMON_SPECIALS,
    canonical_config,
    merged_tokens,
    parse_tokenizer,
    read_tokenizer_files,
)
from textmill.pipelines.rows.ragged import Ragged
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import DataError
from textmill.schemas.files.hub import find_on_hub
from textmill.schemas.tokenizers.tokenizer_json import resolve_ids
from textmill.schemas.typed_json import pause_collector

# They import numba, which a process that only inspects a tokenizer does not need.
_backend_of_parts = import_later("textmill.pipelines.encoding.tokenizer_types:backend_of_parts")
_make_backend = import_later("textmill.pipelines.encoding.tokenizer_types:make_backend")

_ANOTHER = "use another tokenizer"
# Loading a fast backend takes 0.2 s of processor time for GPT-2's vocabulary, in which `tokenizers`
# encodes 0.8 MB, and more for larger ones.
FAST_PAYS_BYTES = 1 << 18
_NOT_SPACES = "\x1c\x1d\x1e\x1f"  # white space for Python's isspace(), not for Unicode


class LoadedTokenizer:
    """A tokenizer and the meaning of its ids.

    Attributes:
      json: canonical bytes of tokenizer.json, without truncation (which would silently cut
        documents) and padding.
      sha256: SHA-256 of `json`, in hexadecimal digits.
      ids: token to id, added tokens included.
      vocab_size: largest id + 1, added tokens included.
      special_ids: role (bos, eos, pad, mask, unk) to id; roles without a token are absent.
      all_special_ids: every id that stands for no text, ascending.
      prefix_ids: ids that the post-processor puts before each text: (0,) for RoBERTa.
      suffix_ids: ids that it puts after each text: (2,) for RoBERTa.
      golden: fixed strings and their ids, without prefix and suffix.
      chat_templates: name to template, from the tokenizer's directory; empty in workers.
      settings: fields of its tokenizer_config.json; empty in workers.
      recorded: the path it was loaded from, or NAME@COMMIT of the Hub; "" in workers.
    """

    chat_templates: Mapping[str, str] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})
    recorded: str = ""

    @pause_collector()
    def __init__(
        self,
        tokenizer: bytes | Tokenizer,
        named_roles: Mapping[str, str] | None = None,
        *,
        place: str = "tokenizer.json",
    ):
        """Loads the bytes of a tokenizer.json, or takes over a parsed tokenizer.

        Args:
          tokenizer: the bytes, canonical or not, or a `tokenizers.Tokenizer`, which is modified.
          named_roles: role to token, from metadata files; other roles get a common name, if the
            vocabulary has one.
          place: the name of the file in errors.

        Raises:
          DataError: the bytes are broken, or the tokenizer cannot be used.
        """
        self._place = place
        self._named_roles = dict(named_roles or {})
        self._unloaded_bytes = FAST_PAYS_BYTES  # to encode before a fast backend is loaded
        self._source, self._kept = b"", None
        if isinstance(tokenizer, bytes) and len(tokenizer) >= kept_tokenizer.LEAST_BYTES:
            self._source = tokenizer
            self._kept = kept_tokenizer.find(kept_tokenizer.key_of(tokenizer))
        if self._kept is None:
            self._facts = self._parse(tokenizer)
        else:
            self._facts = self._kept.values["facts"]
        self.sha256: str = self._facts["sha256"]
        self.vocab_size: int = self._facts["vocab_size"]
        self.golden = tuple(
            (text, tuple(ids))
            for text, ids in zip(GOLDEN_TEXTS, self._facts["golden"], strict=True)
        )
        self.prefix_ids, self.suffix_ids = map(tuple, self._facts["surroundings"])
        self._head: dict[str, Any] = self._facts["head"]
        self._added = {token["id"]: token for token in self._head["added_tokens"]}
        self.special_ids = self._roles()
        special = {i for i, token in self._added.items() if token["special"]}
        self.all_special_ids = tuple(sorted(special | set(self.special_ids.values())))

    def _parse(self, tokenizer: bytes | Tokenizer) -> dict[str, Any]:
        """Parses and checks a tokenizer; returns what `kept_tokenizer` keeps of it as JSON."""
        place, config = self._place, None
        if isinstance(tokenizer, bytes):
            tokenizer, config = parse_tokenizer(tokenizer, place)
        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with failures_as_data_errors(f"{place} cannot be written out", _ANOTHER):
            self.json = tokenizer.to_str().encode()
        self._config = config = canonical_config(self.json, config, place)
        self.ids = resolve_ids(config, place)
        if config["model"].get("dropout"):
            raise DataError(
                f"{place}: its BPE model sets dropout, so the same text gets different ids each "
                'time; set "dropout": null'
            )
        golden = encode_each(tokenizer, list(GOLDEN_TEXTS))
        return {
            "sha256": hashlib.sha256(self.json).hexdigest(),
            "vocab_size": max(self.ids.values()) + 1,
            "golden": golden,
            "surroundings": self._surroundings(golden),
            "head": {**config, "model": {**config["model"], "vocab": {}, "merges": []}},
        }

    @cached_property
    def json(self) -> bytes:
        """The canonical bytes of tokenizer.json."""
        return self._arrays["json"].tobytes()

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        tokens = json.loads(self._arrays["tokens"].tobytes())
        return dict(zip(tokens, self._arrays["token_ids"].tolist(), strict=True))

    @property
    def _arrays(self) -> Mapping[str, np.ndarray]:
        assert self._kept is not None  # else `_parse` has set what needs them
        return self._kept.arrays

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return parse_tokenizer(self.json, self._place)[0]

    @cached_property
    def _config(self) -> dict[str, Any]:
        return canonical_config(self.json, None, self._place)

    def keep(self) -> None:
        """Keeps what was made of a large tokenizer.json for later processes."""
        if not self._source or self._kept is not None:
            return
        backend, reason = self._choice
        arrays = {
            "json": np.frombuffer(self.json, np.uint8),
            "tokens": np.frombuffer(json.dumps([*self.ids]).encode(), np.uint8),
            "token_ids": np.array([*self.ids.values()], np.int64),
            "spelt": np.frombuffer(b"".join(self.token_bytes), np.uint8),
            "spelt_offsets": np.append(0, np.cumsum([*map(len, self.token_bytes)])),
        }
        values = {"facts": self._facts, "backend": backend.name, "reason": reason}
        if backend.name == WORD_TABLE:
            table: Any = backend
            values["plan"], parts = table.plan.parts()
            arrays |= parts
        keys = {kept_tokenizer.key_of(content) for content in (self._source, self.json)}
        kept_tokenizer.keep(tuple(sorted(keys)), kept_tokenizer.KeptTokenizer(values, arrays))

    def with_roles(self, special_ids: Mapping[str, int]) -> "LoadedTokenizer":
        """This tokenizer with the roles that a dataset records, if added tokens can have them.

        Metadata files, which a dataset does not contain, may have named these roles.
        """
        differing = {role: i for role, i in special_ids.items() if self.special_ids.get(role) != i}
        if not differing or not self._added.keys() >= {*differing.values()}:
            return self
        named = {role: self._added[i]["content"] for role, i in differing.items()}
        return LoadedTokenizer(self.json, named, place=self._place)

    def __reduce__(self) -> tuple:
        """Pickles bytes and roles; each process creates its own backend."""
        return partial(LoadedTokenizer, place=self._place), (self.json, self._named_roles)

    def load_backend(self, text_bytes: int = FAST_PAYS_BYTES) -> str:
        """Loads the backend for a run over `text_bytes`: gigatoken, word table or tokenizers.

        Returns:
          Its name; for `tokenizers` also why no faster one is used.
        """
        if text_bytes < FAST_PAYS_BYTES and not self._is_quick:
            return "tokenizers, the fastest for input of this size"
        backend, reason = self._choice
        return f"{backend.name}, since {reason}" if reason else backend.name

    def encode(self, text: pa.LargeStringArray) -> Ragged:
        """Encodes documents exactly as `tokenizers` does with add_special_tokens=False.

        Special tokens written out in the text (`<unk>` in WikiText) become their ids. All backends
        give the same ids; until a fast one pays, `tokenizers` encodes.

        Args:
          text: UTF-8 without nulls; may be a slice.

        Returns:
          The ids of each document.

        Raises:
          DataError: the tokenizer fails on a document.
        """
        if not self._is_quick and text.nbytes <= self._unloaded_bytes:
            self._unloaded_bytes -= text.nbytes
            return ReferenceBackend(self._tokenizer).encode(text)
        return self._choice[0].encode(text)

    @property
    def _is_quick(self) -> bool:
        """Whether the backend is loaded, or is kept and loads at once."""
        is_kept = self._kept is not None and self._kept.values["backend"] == WORD_TABLE
        return is_kept or "_choice" in vars(self)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decodes ids, special tokens written out; bytes that are not UTF-8 become U+FFFD."""
        with failures_as_data_errors(f"{self._place}: its decoder failed", _ANOTHER):
            return self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=False)

    def special_id(self, token: str) -> int | None:
        """The id of a special token; None if `token` is not one."""
        number = self.ids.get(token)
        return number if number in self.all_special_ids else None

    def character_ends(self, texts: list[str]) -> list[list[int]]:
        """For each token of `encode`, the end of its text: an offset in characters."""
        with failures_as_data_errors(
            f"the tokenizer failed on one of {len(texts)} documents", _ANOTHER
        ):
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [[stop for _, stop in encoding.offsets] for encoding in encodings]

    @cached_property
    def golden_pairs(self) -> list[list[tuple[int | None, int, int]]]:
        """Pairs of fixed texts as the post-processor joins them.

        Each token is (0 or 1 for its text, None if it is special; id; token type).

        Raises:
          DataError: the post-processor fails.
        """
        pairs = zip(GOLDEN_TEXTS, (*GOLDEN_TEXTS[1:], GOLDEN_TEXTS[0]), strict=True)
        with failures_as_data_errors(f"{self._place}: its post-processor failed", _ANOTHER):
            joined = [self._tokenizer.encode(first, second) for first, second in pairs]
        return [list(zip(e.sequence_ids, e.ids, e.type_ids, strict=True)) for e in joined]

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes of each id: those that a byte-level token stands for, else its UTF-8.

        Ids without a token have empty bytes.
        """
        if self._kept is not None:
            data, bounds = self._arrays["spelt"].tobytes(), self._arrays["spelt_offsets"].tolist()
            return tuple(data[a:b] for a, b in zip(bounds, bounds[1:], strict=False))
        spelt = [b""] * self.vocab_size
        for token, i in self.ids.items():
            spelt[i] = token.encode()
        if self.is_byte_level:
            plain = {token: i for token, i in self.ids.items() if i not in self._added}
            for i, data in zip(plain.values(), spelt_bytes(plain), strict=True):
                spelt[i] = data
        return tuple(spelt)

    @cached_property
    def is_word_start(self) -> np.ndarray:
        """Whether a token begins a word, for whole-word masking: bool [vocab_size].

        The token alone decides, as published: WordPiece tokens without `##`; byte-level tokens that
        begin with white space (fairseq's rule: `Ġhello` begins a word, `hello` and `,` continue
        one); SentencePiece tokens that begin with `▁`. If a vocabulary marks no tokens, each is a
        word. A special token never begins a word; the first token after it always does, which
        masking takes care of.
        """
        prefix = self.continuing_prefix
        if self.is_byte_level:
            starts = np.array([_begins_with_space(spelt) for spelt in self.token_bytes], bool)
        else:
            starts = np.zeros(self.vocab_size, bool)
            marked = any(token.startswith("▁") for token in self.ids)
            for token, i in self.ids.items():
                if prefix:
                    starts[i] = not token.startswith(prefix)
                else:
                    starts[i] = token.startswith("▁") or not marked
        starts[list(self.all_special_ids)] = False
        return starts

    @property
    def continuing_prefix(self) -> str:
        """The mark of tokens that continue a word: WordPiece's "##"; "" if there is none."""
        return self._head["model"].get("continuing_subword_prefix") or ""

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether tokens stand for bytes, written in `byte_characters`."""
        return '"ByteLevel"' in json.dumps(self._head["pre_tokenizer"])  # quotes in texts are \\"

    def _roles(self) -> dict[str, int]:
        """Role to id: the named token, else the first common name that no merge can produce."""
        added = {token["content"] for token in self._added.values()}
        roles = {}
        for role, names in COMMON_SPECIALS.items():
            named = self._named_roles.get(role)
            if named is not None and named not in self.ids:
                raise DataError(
                    f"{self._place}: the {role} token {named!r} is not in the vocabulary: correct "
                    "special_tokens_map.json or tokenizer_config.json, or save the tokenizer again "
                    "with transformers"
                )
            present = [named] if named else [name for name in names if name in self.ids]
            if present and not added.issuperset(present):
                merged = merged_tokens(self._config, set(present) - added)
                present = [name for name in present if name not in merged]
            if present:
                roles[role] = self.ids[present[0]]
        return roles

    def _surroundings(self, golden: list[list[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that the post-processor adds before and after a text, found by encoding."""
        bare = [(), *map(tuple, golden)]
        with failures_as_data_errors(f"{self._place}: its post-processor failed", _ANOTHER):
            full = [tuple(self._tokenizer.encode(text).ids) for text in ("", *GOLDEN_TEXTS)]
        added = full[0]
        for cut in range(len(added) + 1):
            prefix, suffix = added[:cut], added[cut:]
            if all(prefix + ids + suffix == whole for ids, whole in zip(bare, full, strict=True)):
                return prefix, suffix
        raise DataError(
            f"{self._place}: its post-processor does more than add special tokens before and after "
            f"a text ({GOLDEN_TEXTS[0]!r} becomes {full[1]}, {bare[1]} without it), so rows cannot "
            "be packed: replace it with a template of the form `<s> $A </s>`"
        )

    @cached_property
    @pause_collector()
    def _choice(self) -> tuple[Backend, str]:
        if self._kept is None:
            return choose_backend(self._tokenizer, self._config, self._place)
        values, arrays = self._kept
        if values["backend"] == WORD_TABLE:
            return _backend_of_parts(values["plan"], arrays, self._words), ""
        reference = ReferenceBackend(self._tokenizer)
        if values["backend"] == FastBackend.name:
            return FastBackend(self.json, reference), ""
        return reference, values["reason"]

    def _words(self) -> Any:
        """The `WordEncoder` for words that the word table leaves to `tokenizers`."""
        return _make_backend(self._config, self._tokenizer).plan.words()


def load_tokenizer(path: str | os.PathLike[str]) -> LoadedTokenizer:
    """Loads a tokenizer.json, or a directory with one, vocab.json + merges.txt or vocab.txt.

    Args:
      path: the value of --tokenizer: a path, or a name on the Hugging Face Hub.

    Raises:
      UsageError: `path` has no tokenizer that can be read.
      DataError: a file is broken, or the tokenizer cannot be used.
    """
    found = find_on_hub(os.fspath(path), field="tokenizer")
    files = read_tokenizer_files(found.path)
    tokenizer = LoadedTokenizer(files.data, files.named, place=files.place)
    tokenizer.keep()
    tokenizer.chat_templates, tokenizer.settings = files.chat_templates, files.settings
    tokenizer.recorded = found.recorded
    return tokenizer


def _begins_with_space(spelt: bytes) -> bool:
    character = spelt[:4].decode(errors="replace")[:1]  # UTF-8 takes at most 4 bytes for one
    return character.isspace() and character not in _NOT_SPACES
