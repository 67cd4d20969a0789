"""Reads chat templates from files."""

from textmill.pipelines import store
from textmill.schemas.chat_template import ChatTemplate
from textmill.schemas.errors import UsageError


def read_chat_template(path: str, instead: str = "") -> str:
    """Reads a template from a file and checks it.

    Args:
      path: the path or URL of the file.
      instead: alternatives that an error lists.

    Raises:
      UsageError: the file cannot be read, or is no valid template; the message has the line.
    """
    try:
        text = store.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--chat_template={path} cannot be read: {error}{instead}") from error
    ChatTemplate(text, path, {})
    return text
