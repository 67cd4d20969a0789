"""A tokenizer as the rest of the house sees it: text <-> ragged ids, and what its ids mean.

Pure: numpy and pyarrow, no Beam. A worker makes one from `json` alone, cheaply: the backends load
at the first `encode`.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.encoding.backends import (
    GOLDEN_TEXTS,
    Backend,
    choose_backend,
    encode_each,
    failures_as_data_errors,
)
from pipelines.encoding.splitting.patterns import spelt_bytes
from pipelines.encoding.tokenizer_files import (
    COMMON_SPECIALS,
    canonical_config,
    merged_tokens,
    parse_tokenizer,
    read_tokenizer_files,
)
from pipelines.rows.ragged import Ragged
from schemas.errors import DataError
from schemas.hub import find_on_hub
from schemas.typed_json import pause_collector
from schemas.untrusted.tokenizer_bounds import resolve_ids

if TYPE_CHECKING:
    import tokenizers

_ANOTHER = "use another tokenizer"
_NOT_SPACES = "\x1c\x1d\x1e\x1f"  # Python has them among white space, Unicode has not


class LoadedTokenizer:
    """A tokenizer and what its ids mean.

    Attributes:
      json: canonical bytes of tokenizer.json, without truncation and padding: a document is never
        cut behind the user's back.
      sha256: of `json`.
      vocab_size: largest id + 1, added tokens included.
      special_ids: role (bos, eos, pad, mask, unk) to id; absent roles are absent.
      all_special_ids: every id that stands for no text, ascending.
      prefix_ids: what goes before each text, as its post-processor says: (0,) for RoBERTa.
      suffix_ids: what goes after it: (2,) for RoBERTa.
      golden: fixed strings and their ids, without prefix and suffix.
      chat_templates: that lay beside its file, by name, for who builds a set; none in workers.
      settings: of its tokenizer_config.json, in the same way.
      recorded: the path it was loaded from, or NAME@COMMIT of the Hub; "" in workers.
    """

    chat_templates: Mapping[str, str] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})
    recorded: str = ""

    @pause_collector()
    def __init__(
        self,
        tokenizer: "bytes | tokenizers.Tokenizer",
        named_roles: Mapping[str, str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        place: str = "tokenizer.json",
    ):
        """From tokenizer.json's bytes, or from what was read of files.

        Args:
          tokenizer: the bytes; made canonical if they are not. A tokenizer is changed.
          config: the parsed content of the tokenizer.json that it was read of.
          named_roles: role to token, where another file says so; else common names are looked for.
          place: what to call it in errors.

        Raises:
          DataError: the bytes are broken, or of a tokenizer that cannot be used.
        """
        self._place = place
        self._named_roles = dict(named_roles or {})
        if isinstance(tokenizer, bytes):
            tokenizer, config = parse_tokenizer(tokenizer, place)
        self._tokenizer = tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        with failures_as_data_errors(f"{place} cannot be written out", _ANOTHER):
            self.json = self._tokenizer.to_str().encode()
        self._config = canonical_config(self.json, config, place)
        self._ids = resolve_ids(self._config, place)
        self.sha256 = hashlib.sha256(self.json).hexdigest()
        self.vocab_size = max(self._ids.values()) + 1
        if self._config["model"].get("dropout"):
            raise DataError(
                f"{place}: its BPE model sets dropout, so that the same text gives other ids every "
                'time; write "dropout": null'
            )
        self.special_ids = self._roles()
        added = self._tokenizer.get_added_tokens_decoder()
        special = {i for i, token in added.items() if token.special}
        self.all_special_ids = tuple(sorted(special | set(self.special_ids.values())))
        ids = encode_each(self._tokenizer, list(GOLDEN_TEXTS))
        self.golden = tuple((text, tuple(i)) for text, i in zip(GOLDEN_TEXTS, ids, strict=True))
        self.prefix_ids, self.suffix_ids = self._surroundings()

    def with_roles(self, special_ids: Mapping[str, int]) -> "LoadedTokenizer":
        """Itself, or one whose roles are those that a set records, if added tokens can have them.

        A file beside tokenizer.json named them, which a set does not carry.
        """
        added = self._tokenizer.get_added_tokens_decoder()
        differing = {role: i for role, i in special_ids.items() if self.special_ids.get(role) != i}
        if not differing or not added.keys() >= {*differing.values()}:
            return self
        named = {role: added[i].content for role, i in differing.items()}
        return LoadedTokenizer(self.json, named, place=self._place)

    def __reduce__(self) -> tuple:
        """Pickled as bytes and roles: backends are made where they are used."""
        return partial(LoadedTokenizer, place=self._place), (self.json, self._named_roles)

    @property
    def backend(self) -> str:
        """Which backend encodes: gigatoken, word table, or tokenizers."""
        return self._backend.name

    @property
    def encoded_by(self) -> str:
        """The backend in words, and why it is not a faster one if it is `tokenizers`."""
        backend, reason = self._choice
        return f"{backend.name}, since {reason}" if reason else backend.name

    def encode(self, text: pa.LargeStringArray) -> tuple[Ragged, int]:
        """Ids of each document, equal to `tokenizers`' with add_special_tokens=False.

        Special tokens written out in the text (`<unk>` in WikiText) become their ids, as there.

        Args:
          text: UTF-8 without nulls; may be a slice.

        Returns:
          The ids; and how many documents went from the fast backend to `tokenizers`, because they
          hold characters that the two class differently. 0 where the fast backend is not in use.

        Raises:
          DataError: the tokenizer fails on a document.
        """
        return self._backend.encode(text)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text of ids, special tokens written out; bytes that are not UTF-8 become U+FFFD."""
        with failures_as_data_errors(f"{self._place}: its decoder failed", _ANOTHER):
            return self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=False)

    def special_id(self, token: str) -> int | None:
        """The id of a special token, by how it is written; None if it is none."""
        found = self._ids.get(token)
        return found if found in self.all_special_ids else None

    def character_ends(self, texts: list[str]) -> list[list[int]]:
        """For each token that `encode` gives, how many characters of the text it ends after."""
        with failures_as_data_errors(
            f"the tokenizer failed on one of {len(texts)} documents", _ANOTHER
        ):
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [[stop for _, stop in encoding.offsets] for encoding in encodings]

    @cached_property
    def golden_pairs(self) -> list[list[tuple[int | None, int, int]]]:
        """Pairs of fixed texts as its post-processor joins them.

        Of each token: 0 or 1 for the text that it is of, None if it is special; id; token type.

        Raises:
          DataError: it fails.
        """
        pairs = zip(GOLDEN_TEXTS, (*GOLDEN_TEXTS[1:], GOLDEN_TEXTS[0]), strict=True)
        with failures_as_data_errors(f"{self._place}: its post-processor failed", _ANOTHER):
            joined = [self._tokenizer.encode(first, second) for first, second in pairs]
        return [list(zip(e.sequence_ids, e.ids, e.type_ids, strict=True)) for e in joined]

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """What each id stands for: the bytes of byte-level tokens, else the token as written.

        Ids that no token has are empty.
        """
        spelt = [b""] * self.vocab_size
        for token, i in self._ids.items():
            spelt[i] = token.encode()
        if self.is_byte_level:
            added = self._tokenizer.get_added_tokens_decoder().keys()
            plain = {token: i for token, i in self._ids.items() if i not in added}
            for i, data in zip(plain.values(), spelt_bytes(plain), strict=True):
                spelt[i] = data
        return tuple(spelt)

    @cached_property
    def is_word_start(self) -> np.ndarray:
        """Whether a token begins a word, for whole-word masking: bool [vocab_size].

        By the token alone, as published: with WordPiece what has no `##`; with byte-level BPE what
        begins with white space (fairseq's rule: `Ġhello` begins a word, `hello` and `,` go on), and
        with SentencePiece's alphabet what begins with `▁`. Where tokens do not tell, each is a
        word. A special token never begins one, and the first token after it always does: that is
        for the masking to see to.
        """
        prefix = self.continuing_prefix
        if self.is_byte_level:
            starts = np.array([_begins_with_space(spelt) for spelt in self.token_bytes], bool)
        else:
            starts = np.zeros(self.vocab_size, bool)
            marked = any(token.startswith("▁") for token in self._ids)
            for token, i in self._ids.items():
                if prefix:
                    starts[i] = not token.startswith(prefix)
                else:
                    starts[i] = token.startswith("▁") or not marked
        starts[list(self.all_special_ids)] = False
        return starts

    @property
    def continuing_prefix(self) -> str:
        """What marks a token that goes on with a word: "##" of WordPiece; "" if nothing does."""
        return self._config["model"].get("continuing_subword_prefix") or ""

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether its tokens are bytes, written in `byte_characters`."""
        return '"ByteLevel"' in json.dumps(self._config["pre_tokenizer"])  # quotes in texts are \\"

    def _roles(self) -> dict[str, int]:
        """Role to id: as named, or the first common name that is a token apart from the text."""
        added = {t.content for t in self._tokenizer.get_added_tokens_decoder().values()}
        roles = {}
        for role, names in COMMON_SPECIALS.items():
            named = self._named_roles.get(role)
            if named is not None and named not in self._ids:
                raise DataError(
                    f"{self._place}: a file beside it names {named!r} as the {role} token, which "
                    "is not in its vocabulary: mend special_tokens_map.json or "
                    "tokenizer_config.json, or save the tokenizer again with transformers"
                )
            present = [named] if named else [name for name in names if name in self._ids]
            if present and not added.issuperset(present):
                merged = merged_tokens(self._config, set(present) - added)
                present = [name for name in present if name not in merged]
            if present:
                roles[role] = self._ids[present[0]]
        return roles

    def _surroundings(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What its post-processor adds before and after one text, by encoding with and without."""
        bare = [(), *(ids for _, ids in self.golden)]
        with failures_as_data_errors(f"{self._place}: its post-processor failed", _ANOTHER):
            full = [tuple(self._tokenizer.encode(text).ids) for text in ("", *GOLDEN_TEXTS)]
        added = full[0]
        for cut in range(len(added) + 1):
            prefix, suffix = added[:cut], added[cut:]
            if all(prefix + ids + suffix == whole for ids, whole in zip(bare, full, strict=True)):
                return prefix, suffix
        raise DataError(
            f"{self._place}: its post-processor does more than put special tokens before and after "
            f"a text ({GOLDEN_TEXTS[0]!r} becomes {full[1]}, without it {bare[1]}), which cannot "
            "be packed into rows: give it a template of the form `<s> $A </s>`"
        )

    @property
    def _backend(self) -> Backend:
        return self._choice[0]

    @cached_property
    @pause_collector()
    def _choice(self) -> tuple[Backend, str]:
        return choose_backend(self._tokenizer, self._config, self._place)


def load_tokenizer(path: str | os.PathLike[str]) -> LoadedTokenizer:
    """Loads a tokenizer.json, or a directory that holds one, or vocab.json + merges.txt.

    Args:
      path: what the user gave as --tokenizer; a name on the Hugging Face Hub, too.

    Raises:
      UsageError: nothing there that could be read.
      DataError: what is there is broken, or cannot be used.
    """
    found = find_on_hub(os.fspath(path), flag="tokenizer")
    files = read_tokenizer_files(found.path)
    tokenizer = LoadedTokenizer(
        files.tokenizer, files.named, config=files.config, place=files.place
    )
    tokenizer.chat_templates, tokenizer.settings = files.chat_templates, files.settings
    tokenizer.recorded = found.recorded
    return tokenizer


def _begins_with_space(spelt: bytes) -> bool:
    first = spelt[:1]
    if not first.isascii():
        first = spelt[:4]  # no character is longer
    character = first.decode(errors="replace")[:1]
    return character.isspace() and character not in _NOT_SPACES
