"""HTTP responses as crawlers store them: where the head ends, and the body as it was sent. Pure.

If a body is cut or damaged, the part before the damage is decoded and kept.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from textmill.pipelines.readers.encodings import is_binary

RESPONSES, BODY_CUT = "responses", "body_cut"  # a section of `observed`, and a count in it

# As in warcio, a line of white space is empty too.
_HEAD_END = re.compile(rb"\n[ \t\r\f\v]*\n")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\n")
_SIZE_BEGINS = re.compile(rb"(?:[0-9a-fA-F]{1,16}[ \t]*(?:;[^\r\n]*)?\r?)?\Z")
_CHUNK_END = re.compile(rb"\r?\n|\r?\Z")
_TRAILERS = re.compile(rb"(?:[!-9;-~]+:[^\r\n]*\r?\n)*(?:\r?\n|\Z)")

_MOST_CODINGS = 8  # content encodings that are undone; real bodies have one or two
_MOST_MEMBERS = 10_000  # of a body in gzip
_STEP = 1 << 13  # bytes decoded at once; the last ones before an error are decoded one by one
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_RAW = -15  # wbits of deflate without zlib's header, as some servers send it

# Data, maximum number of bytes -> at most one byte more, and whether all of the data was decoded.
_Decoder = Callable[[bytes, int], tuple[bytes, bool]]


def find_head_end(data: bytes) -> int:
    r"""Bytes of a head with the empty line that ends it, `\r\n` or `\n`; 0 if there is none."""
    match = _HEAD_END.search(data)
    return match.end() if match else 0


def decode_body(data: bytes, headers: Mapping[str, str], longest: int) -> tuple[bytes, bool]:
    """The body of a response without its transfer and content encodings.

    Crawlers often decode a body and keep its headers, so what cannot be decoded at all is returned
    as it is.

    Args:
      data: the body as it is stored.
      headers: headers of the response, by name in lower case.
      longest: maximum bytes of the body; of a longer one, at least one byte more is returned.

    Returns:
      The body, and whether its end is missing because it was cut, damaged, or has other bytes
      after it.
    """
    is_cut = False
    if "chunked" in headers.get("transfer-encoding", "").lower():
        data, is_cut = _join_chunks(data)
    codings = headers.get("content-encoding", "").lower().split(",")
    for coding in reversed(codings[-_MOST_CODINGS:]):
        data, ends_early = _decode(data, coding.strip(), longest)
        is_cut = is_cut or ends_early
    return data, is_cut


def _join_chunks(data: bytes) -> tuple[bytes, bool]:
    r"""The body of a chunked response, and whether it is cut.

        b"4\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\n" -> b"Wikipedia", False

    Many crawlers store the joined body under the same headers, and its first line may look like a
    size: "Cafe". So a body is chunked if sizes and line ends fit up to the last chunk, of size 0,
    or, where the body is cut, if at least one whole chunk fits, or the first is binary data.
    """
    pieces: list[bytes] = []
    at = 0
    while line := _SIZE.match(data, at):
        start, size = line.end(), int(line[1], 16)
        if not size:
            end = _TRAILERS.match(data, start)
            is_last = bool(end) and bool(pieces or not data[start:].strip())
            return (b"".join(pieces), end.end() < len(data)) if end and is_last else (data, False)
        end = _CHUNK_END.match(data, start + size)
        if start + size > len(data) and (pieces or is_binary(data[start:].decode("latin-1"))):
            return b"".join((*pieces, data[start:])), True
        if start + size > len(data) or not end:
            return data, False
        pieces.append(data[start : start + size])
        at = end.end()
    if pieces and _SIZE_BEGINS.match(data, at):
        return b"".join(pieces), True
    return data, False


def _decode(data: bytes, coding: str, longest: int) -> tuple[bytes, bool]:
    """A body without one content encoding, and whether its end is missing."""
    best = b""
    for decoder in _DECODERS.get(coding, ()):
        content, is_whole = decoder(data, longest)
        if is_whole:
            return content, False
        best = max(best, content, key=len)
    # Deflate and brotli have no mark: the first bytes of a plain text may decode to something.
    if best and (data.startswith((_GZIP, _ZSTD)) or is_binary(data.decode("latin-1"))):
        return best, True
    return data, False


def _inflate(data: bytes, longest: int, wbits: int) -> tuple[bytes, bool]:
    """A stream of zlib, or all members in gzip."""
    pieces: list[bytes] = []
    left, at, members, step = longest + 1, 0, 1, _STEP
    member = zlib.decompressobj(wbits)
    while left and at < len(data):
        chunk, before = data[at : at + step], member.copy() if step > 1 else member
        try:
            piece = member.decompress(chunk, left)
        except zlib.error:
            if step == 1:
                break
            member, step = before, 1
            continue
        pieces.append(piece)
        left -= len(piece)
        at += len(chunk) - len(member.unused_data)
        if member.eof:
            if at == len(data) or not data.startswith(_GZIP, at) or members == _MOST_MEMBERS:
                return b"".join(pieces), at == len(data)
            member, members = zlib.decompressobj(wbits), members + 1
    return b"".join(pieces), not left


def _read_arrow(data: bytes, longest: int, codec: str) -> tuple[bytes, bool]:
    """A stream of one of Arrow's codecs."""
    stream, content = pa.CompressedInputStream(pa.BufferReader(data), codec), bytearray()
    decodable = longest + 1  # bytes that can be decoded in large steps
    while len(content) <= longest:
        step = max(min(_STEP, decodable - len(content)), 1)
        buffer = memoryview(bytearray(step))
        try:
            size = stream.readinto(buffer)
        except OSError:
            if step == 1:
                return bytes(content), False
            decodable = len(content)
            stream, content = pa.CompressedInputStream(pa.BufferReader(data), codec), bytearray()
            continue
        if not size:
            break
        content += buffer[:size]
    return bytes(content), True


_GZIP_DECODERS = (partial(_inflate, wbits=31),)
# Content encoding -> ways to decode it.
_DECODERS: dict[str, tuple[_Decoder, ...]] = {
    "gzip": _GZIP_DECODERS,
    "x-gzip": _GZIP_DECODERS,
    "deflate": (partial(_inflate, wbits=47), partial(_inflate, wbits=_RAW)),
    "br": (partial(_read_arrow, codec="brotli"),),
    "zstd": (partial(_read_arrow, codec="zstd"),),
}
