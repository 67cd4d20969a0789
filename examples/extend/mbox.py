"""An input format: mail archives (.mbox), in which each message is a document.

Goes to pipelines/readers/formats/mbox.py.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from typing import Any, BinaryIO

from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.readers.formats.role_values import Refusal, record_documents
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Chunks, Part


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """A missing field is reported for each message."""


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The messages of a file, which is read whole."""
    chunks = Chunks(raw, part, source.block_bytes)  # decompressed
    data = b"".join(chunks)
    messages = re.split(rb"^From .*\n", data, flags=re.M)[1:]
    records = (parse(number, message) for number, message in enumerate(messages))
    documents = record_documents(records, source.roles, part.path, source_bytes=len(data))
    yield replace(documents, stored_bytes=chunks.new_bytes(), digests=chunks.digests())


def parse(number: int, data: bytes) -> tuple[int, dict[str, Any], Refusal | None]:
    """The number of a message, its fields, and why it is rejected."""
    message = message_from_bytes(data, policy=policy.default)
    body = message.get_body(("plain",))
    if body is None:
        return number, {}, ("no_plain_text", f"the message is {message.get_content_type()}")
    text = re.sub(r"^>(>*From )", r"\1", body.get_content(), flags=re.M)  # as mbox quotes it
    return number, {"text": text.strip(), "subject": message["subject"] or ""}, None
