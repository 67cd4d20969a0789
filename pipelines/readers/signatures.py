"""What the first bytes of a file say it is, where it was taken for text. Pure."""

from schemas.errors import DataError

PEEKED = 512  # bytes that are enough
_PACKED = (  # first bytes, what it is, how its name should end
    (b"\x1f\x8b\x08", "gzip", ".gz"),
    (b"\x28\xb5\x2f\xfd", "zstd", ".zst"),
    (b"BZh", "bzip2", ".bz2"),
    (b"\xfd7zXZ\0", "xz", ".xz"),
)
_OTHERS = (
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"PAR1", "a Parquet file", "give --input_format=parquet, or name it .parquet"),
    (b"ARROW1\0\0", "an Arrow file", "give --input_format=arrow, or name it .arrow"),
    (b"%PDF-", "a PDF", "extract its text"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"SQLite format 3\0", "an SQLite database", "export its text"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "export its text"),
)
_ENCODED = (  # the marks of UTF-32 first: they begin like those of UTF-16
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_MARK_OF_TAR = slice(257, 262)


def refuse_foreign(head: bytes, path: str, *, unpacked: bool) -> None:
    """Refuses what begins as no text does; line by line it might pass for some.

    Args:
      head: the first PEEKED bytes.
      path: of the file.
      unpacked: whether they were compressed once already.

    Raises:
      DataError: says what it is and what to do.
    """
    for mark, name in _ENCODED:
        if head.startswith(mark):
            raise DataError(
                f"{path} is {name} and must be UTF-8: iconv -f {name} -t UTF-8 FILE > NEW_FILE"
            )
    for mark, name, extension in _PACKED:
        if head.startswith(mark) and (mark != b"BZh" or head[4:10] == b"1AY&SY"):
            remedy = (
                "it was compressed twice: unpack it once more"
                if unpacked
                else f"let its name end in {extension}"
            )
            raise DataError(f"{path} holds {name} data and no text: {remedy}")
    for mark, name, remedy in _OTHERS:
        if head.startswith(mark):
            raise DataError(f"{path} holds {name} and no text: {remedy}")
    if head[_MARK_OF_TAR] == b"ustar":
        raise DataError(f"{path} holds a tar archive and no text: unpack it")


def is_packed(head: bytes, extension: str) -> bool:
    """Whether a file begins as its extension says."""
    return any(head.startswith(mark) for mark, _, end in _PACKED if end == extension) or (
        extension == ".zst" and head[1:4] == b"\x2a\x4d\x18"  # a frame to skip comes first
    )
