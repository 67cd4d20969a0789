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
from textmill.pipelines.encoding.backends import GOLDEN_TEXTS, choose_backend, with_gigatoken
from textmill.pipelines.encoding.patterns import spelt_bytes
from textmill.pipelines.encoding.reference import (
    GIGATOKEN,
    Backend,
    LateTokenizer,
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
from textmill.schemas.errors import DataError
from textmill.schemas.files.hub import find_on_hub
from textmill.schemas.tokenizers.tokenizer_files import WHOLE
from textmill.schemas.tokenizers.tokenizer_json import resolve_ids
from textmill.schemas.typed_json import pause_collector

_ANOTHER = "use another tokenizer"
# Loading a fast backend takes 0.2 s of processor time for GPT-2's vocabulary, in which `tokenizers`
# encodes 0.8 MB, and more for larger ones.
FAST_PAYS_BYTES = 1 << 18
# The word table of a kept tokenizer loads at once, and gigatoken is up to twice as fast, but takes
# as long to load as it saves on so many bytes for each token of the vocabulary.
GIGATOKEN_PAYS_BYTES = 640
_KEPT = frozenset(
    ("head", "sha256", "vocab_size", "special_ids", "all_special_ids", "special_tokens", "golden")
    + ("prefix_ids", "suffix_ids", "_keys", "_added", "_quick", "_chosen", "_unloaded_bytes")
)
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
      special_tokens: token to id, of these ids only.
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
    _chosen = ""  # the name of the backend for large inputs, once it is known
    _packed: Mapping[str, np.ndarray] = MappingProxyType({})

    @pause_collector()
    def __init__(
        self,
        tokenizer: bytes | Tokenizer,
        named_roles: Mapping[str, str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        contents: Mapping[str, bytes] | None = None,
        place: str = "tokenizer.json",
    ):
        """Loads the bytes of a tokenizer.json, or takes over a parsed tokenizer.

        Args:
          tokenizer: the bytes, canonical or not, or a `tokenizers.Tokenizer`, which is modified.
          named_roles: role to token, from metadata files; other roles get a common name, if the
            vocabulary has one.
          config: the parsed tokenizer.json, if `tokenizer` was read from one.
          contents: its files by name, if `tokenizer` was read from them.
          place: the name of the file in errors.

        Raises:
          DataError: the bytes are broken, or the tokenizer cannot be used.
        """
        self._place = place
        self._named_roles = dict(named_roles or {})
        if isinstance(tokenizer, bytes):
            contents = {WHOLE: tokenizer}
            tokenizer, config = parse_tokenizer(tokenizer, place)
        self._tokenizer: Any = tokenizer
        self._unloaded_bytes = FAST_PAYS_BYTES  # to encode before a fast backend is loaded
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        with failures_as_data_errors(f"{place} cannot be written out", _ANOTHER):
            self.json = self._tokenizer.to_str().encode()
        files = (contents or {}, {WHOLE: self.json})
        keys = {kept_tokenizer.key_of(content, self._named_roles) for content in files} - {""}
        self._keys = sorted(keys)
        self._config = canonical_config(self.json, config, place)
        self.head = {**self._config, "model": {**self._config["model"], "vocab": {}, "merges": []}}
        self._added = {token["id"]: token for token in self.head["added_tokens"]}
        self.sha256 = hashlib.sha256(self.json).hexdigest()
        self.vocab_size = max(self.ids.values()) + 1
        if self._config["model"].get("dropout"):
            raise DataError(
                f"{place}: its BPE model sets dropout, so the same text gets different ids each "
                'time; set "dropout": null'
            )
        self.special_ids = self._roles()
        special = {i for i, token in self._added.items() if token["special"]}
        self.all_special_ids = tuple(sorted(special | set(self.special_ids.values())))
        known = set(self.all_special_ids)
        self.special_tokens = {token: i for token, i in self.ids.items() if i in known}
        ids = encode_each(self._tokenizer, list(GOLDEN_TEXTS))
        self.golden = tuple((text, tuple(i)) for text, i in zip(GOLDEN_TEXTS, ids, strict=True))
        self.prefix_ids, self.suffix_ids = self._surroundings()

    @classmethod
    def kept(
        cls, contents: Mapping[str, bytes], named_roles: Mapping[str, str], place: str
    ) -> "LoadedTokenizer | None":
        """The tokenizer of some files, if an earlier process has kept it.

        Args:
          contents: the files by name.
          named_roles: role to token, from metadata files.
          place: the name of the file in errors.
        """
        loaded = cls.__new__(cls)
        loaded._place, loaded._named_roles = place, dict(named_roles)
        loaded._tokenizer = LateTokenizer(lambda: parse_tokenizer(loaded.json, place)[0])
        key = kept_tokenizer.key_of(contents, named_roles)
        state = kept_tokenizer.find(key, loaded._tokenizer) if key else None
        if state is None:
            return None
        vars(loaded).update(state)
        return loaded

    def _keep(self) -> None:
        """Keeps what was made of a large tokenizer for later processes."""
        if self._keys:
            state = {name: value for name, value in vars(self).items() if name in _KEPT}
            state["_packed"] = {
                "json": np.frombuffer(self.json, np.uint8),
                "token_bytes": self.spelt.values,
                "token_sizes": self.spelt.lengths,
            }
            kept_tokenizer.keep(self._keys, state, self._tokenizer)

    @cached_property
    def json(self) -> bytes:
        """The canonical bytes of tokenizer.json."""
        return self._packed["json"].tobytes()

    @cached_property
    @pause_collector()
    def ids(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        return resolve_ids(self._config, self._place)

    @cached_property
    def _config(self) -> dict[str, Any]:
        return canonical_config(self.json, None, self._place)

    def with_roles(self, special_ids: Mapping[str, int]) -> "LoadedTokenizer":
        """This tokenizer with the roles that a dataset records, if added tokens can have them.

        Metadata files, which a dataset does not contain, may have named these roles.
        """
        differing = {role: i for role, i in special_ids.items() if self.special_ids.get(role) != i}
        if not differing or not self._added.keys() >= {*differing.values()}:
            return self
        named = {role: self._added[i]["content"] for role, i in differing.items()}
        return tokenizer_of_json(self.json, named, place=self._place)

    def __reduce__(self) -> tuple:
        """Pickles bytes and roles; each process creates its own backend."""
        return partial(tokenizer_of_json, place=self._place), (self.json, self._named_roles)

    def load_backend(self, text_bytes: int = FAST_PAYS_BYTES) -> str:
        """Loads the backend for a run over `text_bytes`: gigatoken, word table or tokenizers.

        Returns:
          Its name; for `tokenizers` also why no faster one is used.
        """
        if not self._keys and text_bytes < FAST_PAYS_BYTES:
            return "tokenizers, the fastest for input of this size"
        is_small = self._keys and text_bytes < self._gigatoken_pays
        backend, reason = self._quick if is_small else self._choice
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
        if "_choice" not in vars(self) and text.nbytes <= self._unloaded_bytes:
            self._unloaded_bytes -= text.nbytes
            is_made = "_quick" in vars(self)
            backend = self._quick[0] if is_made else ReferenceBackend(self._tokenizer)
            return backend.encode(text)
        return self._choice[0].encode(text)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decodes ids, special tokens written out; bytes that are not UTF-8 become U+FFFD."""
        with failures_as_data_errors(f"{self._place}: its decoder failed", _ANOTHER):
            return self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=False)

    def special_id(self, token: str) -> int | None:
        """The id of a special token; None if `token` is not one."""
        return self.special_tokens.get(token)

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
    def spelt(self) -> Ragged:
        """The bytes of each id: those that a byte-level token stands for, else its UTF-8.

        Ids without a token have empty bytes.
        """
        if self._packed:
            return Ragged.of(self._packed["token_bytes"], self._packed["token_sizes"])
        spelt = [b""] * self.vocab_size
        for token, i in self.ids.items():
            spelt[i] = token.encode()
        if self.is_byte_level:
            plain = {token: i for token, i in self.ids.items() if i not in self._added}
            for i, data in zip(plain.values(), spelt_bytes(plain), strict=True):
                spelt[i] = data
        return Ragged.of(np.frombuffer(b"".join(spelt), np.uint8), [*map(len, spelt)])

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """`spelt` as an object for each id."""
        joined, bounds = self.spelt.values.tobytes(), self.spelt.offsets.tolist()
        return tuple(joined[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False))

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
        return self.head["model"].get("continuing_subword_prefix") or ""

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether tokens stand for bytes, written in `byte_characters`."""
        return '"ByteLevel"' in json.dumps(self.head["pre_tokenizer"])  # quotes in texts are \\"

    @property
    def _gigatoken_pays(self) -> int:
        """The bytes of text from which on gigatoken is faster than a kept word table."""
        return GIGATOKEN_PAYS_BYTES * self.vocab_size

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

    def _surroundings(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that the post-processor adds before and after a text, found by encoding."""
        bare = [(), *(ids for _, ids in self.golden)]
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
        """The backend for large inputs, and why it is not a fast one."""
        if self._chosen:
            backend, reason = self._quick
            is_other = not reason and backend.name != self._chosen
            return (with_gigatoken(backend, self.json) if is_other else backend), reason
        backend, reason = choose_backend(self._tokenizer, self._config, self.json, self._place)
        if not reason:
            self._chosen = backend.name
            if backend.name != GIGATOKEN:
                self._quick = backend, reason
            self._keep()
        return backend, reason

    @cached_property
    @pause_collector()
    def _quick(self) -> tuple[Backend, str]:
        """The backend that is kept, and why it is not a fast one."""
        quick = choose_backend(self._tokenizer, self._config, self.json, self._place, is_kept=True)
        if not quick[1]:
            self._unloaded_bytes = self._gigatoken_pays
            vars(self)["_quick"] = quick
            self._keep()
        return quick


@pause_collector()
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
    tokenizer = LoadedTokenizer.kept(files.contents, files.named, files.place)
    if tokenizer is None:
        parsed, config = files.parse()
        tokenizer = LoadedTokenizer(
            parsed, files.named, config=config, contents=files.contents, place=files.place
        )
    tokenizer.chat_templates, tokenizer.settings = files.chat_templates, files.settings
    tokenizer.recorded = found.recorded
    return tokenizer


def tokenizer_of_json(
    content: bytes, named_roles: Mapping[str, str] | None = None, *, place: str = WHOLE
) -> LoadedTokenizer:
    """The tokenizer of a canonical tokenizer.json; arguments and errors as of LoadedTokenizer."""
    kept = LoadedTokenizer.kept({WHOLE: content}, named_roles or {}, place)
    return kept or LoadedTokenizer(content, named_roles, place=place)


def _begins_with_space(spelt: bytes) -> bool:
    character = spelt[:4].decode(errors="replace")[:1]  # UTF-8 takes at most 4 bytes for one
    return character.isspace() and character not in _NOT_SPACES
