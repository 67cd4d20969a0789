r"""The tokenizer types that the word table encodes, and how each cuts words: `TOKENIZER_TYPES`.

Text may be cut where the tokenizer cuts it, or where none of its steps reaches across. A word is
therefore not always a word of a language: it may be ` dog`, `ing`, or a whole line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from textmill.pipelines.encoding.added_tokens import AddedTokens
from textmill.pipelines.encoding.automaton import UnsupportedPattern
from textmill.pipelines.encoding.character_sets import CODE_POINTS, property_set
from textmill.pipelines.encoding.gigatoken_engine import why_not_gigatoken, with_gigatoken
from textmill.pipelines.encoding.normal_text import NORMALIZERS
from textmill.pipelines.encoding.patterns import GPT2, PATTERNS, bert_words, byte_characters
from textmill.pipelines.encoding.reference import (
    WORD_TABLE,
    Tokenizer,
    normalizers,
    pre_tokenizers,
)
from textmill.pipelines.encoding.word_merges import merges_of_bytes, merges_of_characters
from textmill.pipelines.encoding.word_pieces import Pieces, pieces_of
from textmill.pipelines.encoding.word_table import (
    EncodingPlan,
    PieceBackend,
    Prefix,
    WordTable,
)

Config = Mapping[str, Any]
_SPACE = "▁"
# How train_tokenizer puts a space before a text if a Split comes before ByteLevel.
_SPACE_FIRST = {
    "type": "Metaspace",
    "replacement": " ",
    "prepend_scheme": "always",
    "split": False,
}
_ODD_OPTIONS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
_WHITE = {
    _SPACE,
    *map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029)),
    "\u202f",
    "\u205f",
    "\u3000",
}
_ALPHABET = 16  # characters that merges join, from which on words of them alone are cut
_ASSIGNED = 0x32400  # code points from here on are not letters
# Characters that may join with the one before or after them (UAX #29), and those that are not text.
_UNSPLITTABLE = (r"\p{M}", r"\p{C}", r"\p{Lm}", r"\p{Sk}", r"\p{Z}", r"\s", r"\u0E33", r"\u0EB3")
_PREPENDED = (0xD4E, 0x111C2, 0x111C3, 0x1193F, 0x11941, 0x11A3A, *range(0x11A84, 0x11A8A))
_PREPENDED += (0x11D46, 0x11F02)


class NoPlan(Exception):
    """The word table cannot encode for a tokenizer; the message is the reason."""


def make_backend(
    config: Config, tokenizer: Tokenizer, data: bytes = b"", *, is_kept: bool = False
) -> PieceBackend | str:
    """Makes gigatoken or the word table for a tokenizer, or returns why neither takes it.

    Args:
      config: its tokenizer.json, as `tokenizers` writes it.
      tokenizer: the same tokenizer, without truncation and padding.
      data: its tokenizer.json, if it is written already.
      is_kept: whether to make the word table, which can be kept on disk.
    """
    try:
        plan = make_plan(config, tokenizer)
        backend = PieceBackend(WORD_TABLE, plan, WordTable)
        if not is_kept and why_not_gigatoken(config, plan) is None:
            return with_gigatoken(backend, data or tokenizer.to_str().encode())
        _ = plan.splitter  # which raises UnsupportedPattern
        return backend
    except NoPlan as error:
        return str(error)
    except UnsupportedPattern as error:
        return f"it splits by a pattern that Textmill does not compile: {error}"


def make_plan(config: Config, tokenizer: Tokenizer) -> EncodingPlan:
    """The plan for a tokenizer by its type in `TOKENIZER_TYPES`.

    Raises:
      NoPlan: none fits it.
    """
    model = config["model"]["type"]
    steps = _steps(config["pre_tokenizer"], "pretokenizers")
    make = TOKENIZER_TYPES.get((model, bool(steps) and steps[-1]["type"] == "ByteLevel"))
    return _refuse(f"its model is {model}") if make is None else make(config, tokenizer)


def _refuse(reason: str) -> NoReturn:
    raise NoPlan(reason)


# ---- byte-level BPE ----


def _plan_byte_level(config: Config, tokenizer: Tokenizer) -> EncodingPlan:
    """Regular expressions alone cut the text; bytes are merged within a word."""
    steps = _steps(config["pre_tokenizer"], "pretokenizers")
    model = config["model"]
    for option in (*_ODD_OPTIONS, "byte_fallback"):
        if model.get(option):
            _refuse(f"its model sets {option}")
    if not model["vocab"].keys() >= set(byte_characters()):
        _refuse("its vocabulary lacks single bytes")
    if len(set(model["vocab"].values())) < len(model["vocab"]):
        _refuse("two tokens of its vocabulary have one id")
    normal = _normalizers(config)
    if not set(normal) <= set(NORMALIZERS):
        _refuse(f"its normalizer is {', '.join(normal)}")
    prefix = Prefix(b" ", unless=(b" ",))
    begins_with_space = len(steps) > 1 and steps[0] == _SPACE_FIRST
    last, patterns = steps[-1], [_pattern(step) for step in steps[begins_with_space:-1]]
    if last.get("use_regex", True):
        patterns.append(PATTERNS[GPT2])
    if not patterns:
        _refuse("it does not split text")
    if last["add_prefix_space"] and len(steps) > 1:
        _refuse("it puts a space before each word")
    return EncodingPlan(
        tuple(patterns),
        tokenizer,
        _words_of_bytes,
        lambda: merges_of_bytes(model),
        *_added_tokens(config, tokenizer),
        normalizers=tuple(normal),
        prefix=prefix if begins_with_space or last["add_prefix_space"] else None,
    )


def _pattern(step: Config) -> str:
    """The regular expression that cuts text as a step of the pre-tokenizer does."""
    if step["type"] == "Digits" and step["individual_digits"]:
        return f"[{_as_set(_numeric())}]"
    if step["type"] != "Split":
        _refuse(f"its pre_tokenizer has a step {step['type']}")
    literal = step["pattern"].get("String")
    pattern = re.escape(literal) if literal is not None else step["pattern"]["Regex"]
    whole = step["behavior"] == "Removed" and step["invert"] and pattern in PATTERNS.values()
    if literal == "" or not whole and (step["behavior"] != "Isolated" or step["invert"]):
        _refuse(f"its pre_tokenizer splits with the behavior {step['behavior']}")
    return pattern


def _numeric() -> np.ndarray:
    """The characters that Digits takes for digits: bool[code points]."""
    points = [p for p in range(_ASSIGNED) if not 0xD800 <= p < 0xE000]
    text = "".join(f"a{chr(p)}" for p in points)
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(text)
    digits = np.zeros(CODE_POINTS, bool)
    digits[[ord(piece) for piece, _ in pieces if len(piece) == 1 and piece != "a"]] = True
    return digits


def _members(characters: Iterable[str]) -> np.ndarray:
    members = np.zeros(CODE_POINTS, bool)
    members[[*map(ord, characters)]] = True
    return members


def _as_set(members: np.ndarray) -> str:
    """The content of a regular expression's [set] for bool[code points]."""
    edges = np.flatnonzero(np.diff(members, prepend=False, append=False)).tolist()
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return "".join(rf"\x{{{first:X}}}-\x{{{stop - 1:X}}}" for first, stop in pairs)


# ---- WordPiece ----


def _plan_word_piece(config: Config, tokenizer: Tokenizer) -> EncodingPlan:
    """BERT normalizes and splits character by character, except for accents."""
    normal = _normalizers(config)
    splits = [step["type"] for step in _steps(config["pre_tokenizer"], "pretokenizers")]
    if normal not in ([], ["BertNormalizer"]) or splits != ["BertPreTokenizer"]:
        _refuse("it does not normalize and split text as BERT does")
    chinese_apart = bool(normal) and config["normalizer"]["handle_chinese_chars"]
    pattern = bert_words(chinese_apart=chinese_apart)
    return EncodingPlan(
        (pattern,),
        tokenizer,
        _without_added,
        lambda: pieces_of(config["model"], _without_added(tokenizer)),
        *_added_tokens(config, tokenizer),
    )


# ---- Unigram ----


def _plan_unigram(config: Config, tokenizer: Tokenizer) -> EncodingPlan:
    """Text is cut at spaces, except beside characters that may join with a space."""
    allowed = {"Precompiled", "NFKC", "NFKD", "NFC", "NFD", "StripAccents", "Lowercase", "Nmt"}
    for step in _steps(config["normalizer"], "normalizers"):
        in_a_word = step["type"] == "Replace" and " " not in step["pattern"].get("String", " ")
        spaces = step["type"] == "Replace" and step["pattern"].get("Regex") == " {2,}"
        right = step["type"] == "Strip" and not step["strip_left"]
        if not (step["type"] in allowed or in_a_word or spaces or right):
            _refuse(f"its normalizer has a step {step['type']}")
    steps = _steps(config["pre_tokenizer"], "pretokenizers")
    if [s["type"] for s in steps] not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        _refuse("it does not split text at spaces, as T5 does")
    if steps[-1]["prepend_scheme"] == "first" or not steps[-1]["split"]:
        _refuse("it does not put a mark before each word")
    spaces = _spaces(tokenizer, config)
    unsplittable = _as_set(_unsplittable_neighbours(tokenizer, spaces))
    beside = rf"[{unsplittable}][{spaces}]*"
    pattern = rf"[{spaces}]*(?:[^{spaces}{unsplittable}]|{beside}|[{spaces}]+{beside})+|[{spaces}]+"
    touching = _touching(config)

    def make_model() -> Pieces | None:
        if touching is None:
            return None
        return pieces_of(config["model"], _without_added(tokenizer), touching)

    added = _added_tokens(config, tokenizer)
    return EncodingPlan((pattern,), tokenizer, _without_added, make_model, *added)


def _touching(config: Config) -> str | None:
    """The characters of strings that normalizers replace; None if an earlier step may make them."""
    replaced, changed = "", False
    for step in _steps(config["normalizer"], "normalizers"):
        string = step["pattern"].get("String", "") if step["type"] == "Replace" else ""
        if len(string) > 1 and changed:
            return None
        replaced, changed = replaced + string, changed or len(string) < 2
    return replaced


def _spaces(tokenizer: Tokenizer, config: Config) -> str:
    r"""The plain space, and those of "\n", "\t" and "\r" for which it stands in normalized text.

    None of them joins with another character, except that "\r\n" is one (UAX #29, GB4 and GB5).
    """
    replaced = "".join(
        step["pattern"].get("String", "")
        for step in _steps(config["normalizer"], "normalizers")
        if step["type"] == "Replace"
    )
    normalizer = tokenizer.normalizer
    if normalizer is None:
        return " "
    ends = [
        end
        for end in "\n\t\r"
        if end not in replaced
        and normalizer.normalize_str(f"a{end}b") == "a b"
        and normalizer.normalize_str(f"a{end}\nb").replace("  ", " ") == "a b"
    ]
    return " " + "".join(ends)


def _unsplittable_neighbours(tokenizer: Tokenizer, spaces: str) -> np.ndarray:
    """The characters beside which text is not cut at a space: bool[code points].

    They may join with the space, or a normalizer removes them or turns them into text that begins
    or ends with white space.
    """
    unsplittable = np.any([property_set(atom) for atom in _UNSPLITTABLE], axis=0)
    unsplittable[list(_PREPENDED)] = True
    unsplittable[[*map(ord, "^`")]] = False  # symbols that modify nothing
    if tokenizer.normalizer is not None:
        normalize = tokenizer.normalizer.normalize_str
        for point in np.flatnonzero(~unsplittable[:_ASSIGNED]).tolist():
            text = normalize(chr(point))
            unsplittable[point] = text != chr(point) and (
                not text or text[0] in _WHITE or text[-1] in _WHITE
            )
    unsplittable[_ASSIGNED:] = True
    unsplittable[[*map(ord, spaces)]] = False
    return unsplittable


# ---- SentencePiece's BPE ----


def _plan_sentencepiece(config: Config, tokenizer: Tokenizer) -> EncodingPlan:
    """Text is cut before spaces, and between characters that no merge joins."""
    model, vocab = config["model"], config["model"]["vocab"]
    if not model.get("byte_fallback") or any(f"<0x{i:02X}>" not in vocab for i in range(256)):
        _refuse("it neither splits text into words of bytes nor has a token for each byte")
    for option in (*_ODD_OPTIONS, "ignore_merges"):
        if model.get(option):
            _refuse(f"its model sets {option}")
    for left, right in model["merges"]:
        if re.search(f"[^{_SPACE}]{_SPACE}", left + right):
            _refuse(f"its merge of {left!r} and {right!r} crosses the end of a word")
    spaces = f" {_SPACE}"
    parts = {part for merge in model["merges"] for part in merge}
    if any(re.fullmatch("<0x[0-9A-F]{2}>", part) for part in parts):
        words = [f"[^{spaces}]+"]  # any character may become bytes
    else:
        joined = _joined_characters(model["merges"])
        words = [f"[{_as_set(members)}]+" for members in joined]
        words.append(f"[{_as_set(~np.any([*joined, _members(spaces)], axis=0))}]")
    pattern = "|".join([*(f"[{spaces}]*{word}" for word in words), f"[{spaces}]+"])
    return EncodingPlan(
        (pattern,),
        tokenizer,
        _words_with_spaces,
        lambda: merges_of_characters(model, _SPACE),
        *_added_tokens(config, tokenizer),
        prefix=_sentencepiece_prefix(config),
    )


def _joined_characters(merges: Sequence[tuple[str, str]]) -> list[np.ndarray]:
    """Sets of characters that merges join only with others of the same set, or with spaces.

    In published vocabularies these are alphabets and punctuation. Digits, line ends and most
    ideographs are in none.

    Returns:
      Disjoint sets, each bool[code points]; the last may join several small ones.
    """
    sets: dict[str, set[str]] = {}
    for left, right in merges:
        one, other = left[-1], right[0]
        if _SPACE not in (one, other) and (one not in sets or sets[one] is not sets.get(other)):
            pair = {*sets.get(one, one), *sets.get(other, other)}
            sets |= dict.fromkeys(pair, pair)
    distinct = {id(joined): joined for joined in sets.values()}.values()
    large = [joined for joined in distinct if len(joined) >= _ALPHABET]
    small = {character for character, joined in sets.items() if len(joined) < _ALPHABET}
    return [_members(joined) for joined in (*large, small) if joined]


def _sentencepiece_prefix(config: Config) -> Prefix | None:
    """The prefix of a text, if the steps do no more than add it and make spaces visible."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    normal = _steps(config["normalizer"], "normalizers")
    steps = _steps(config["pre_tokenizer"], "pretokenizers")
    always = Prefix(b" ")
    if normal and normal[-1] == replace:
        cuts_at_spaces = [s["type"] == "Split" and s["pattern"] == {"String": " "} for s in steps]
        if all(cuts_at_spaces):  # without effect: no spaces are left
            if normal[:-1] == [{"type": "Prepend", "prepend": _SPACE}]:
                return always
            if not normal[:-1]:
                return None
    if not normal and len(steps) == 1 and steps[0]["type"] == "Metaspace":
        [step] = steps
        if step["replacement"] == _SPACE and not step["split"]:
            prefix = Prefix(
                b" ", unless=(b" ", _SPACE.encode()), first=step["prepend_scheme"] == "first"
            )
            return None if step["prepend_scheme"] == "never" else prefix
    _refuse("it does not make spaces visible as SentencePiece does")


# By the type of the model, and whether the last step of the pre-tokenizer turns words into bytes.
# `tokenizers` encodes for all others.
TOKENIZER_TYPES = {
    ("BPE", True): _plan_byte_level,
    ("BPE", False): _plan_sentencepiece,
    ("WordPiece", False): _plan_word_piece,
    ("Unigram", False): _plan_unigram,
}


# ---- parts of a tokenizer.json ----


def _steps(part: Config | None, name: str) -> list[Config]:
    """The steps of a part, with sequences flattened."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for inner in part[name] for step in _steps(inner, name)]


def _normalizers(config: Config) -> list[str]:
    return [step["type"] for step in _steps(config["normalizer"], "normalizers")]


def _without_added(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without its added tokens, which become ordinary text."""
    words = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        words.normalizer = tokenizer.normalizer
    words.pre_tokenizer = tokenizer.pre_tokenizer
    return words


def _words_of_bytes(tokenizer: Tokenizer) -> Tokenizer:
    words = Tokenizer(tokenizer.model)
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return words


def _words_with_spaces(tokenizer: Tokenizer) -> Tokenizer:
    words = Tokenizer(tokenizer.model)
    words.normalizer = normalizers.Replace(" ", _SPACE)
    return words


def _check_added(token: Config, others: Sequence[Config]) -> None:
    content = token["content"]
    if token["single_word"]:
        _refuse(f"added token {content!r} is a single word")
    if token["rstrip"] and any(other["content"][:1].isspace() for other in others):
        _refuse(f"added token {content!r} strips white space that begins another added token")


def _added_tokens(config: Config, tokenizer: Tokenizer) -> tuple[AddedTokens, AddedTokens | None]:
    """The added tokens that are matched in the raw text, and those matched in normalized text."""
    for token in config["added_tokens"]:
        _check_added(token, config["added_tokens"])
    raw = [token for token in config["added_tokens"] if not token["normalized"]]
    rest = [token for token in config["added_tokens"] if token["normalized"]]
    if not rest:
        return AddedTokens(raw), None
    if _normalizers(config) not in ([], ["NFC"]):
        _refuse(f"added token {rest[0]['content']!r} is matched in normalized text")
    if not raw and tokenizer.normalizer is None:
        return AddedTokens(rest), None
    normalize = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    normal = [{**token, "content": normalize(token["content"])} for token in rest]
    if len({token["content"] for token in normal}) < len(normal):
        _refuse("two of its added tokens are one when normalized")
    return AddedTokens(raw), AddedTokens(normal)
