"""Chat templates: how messages become one text, in Jinja as `transformers` runs it."""

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pipelines.storage import store
from schemas.errors import UsageError


class _Generation(Extension):
    """`{% generation %}`, with which templates mark what the model itself says."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(inside, lineno=line)


def read_chat_template(path: str) -> str:
    """The template of a file.

    Raises:
      UsageError: there is no such file, or it is no template; says in which line.
    """
    try:
        text = store.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--chat_template={path} cannot be read: {error}") from error
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    try:
        jinja.from_string(text)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        place = f"{path}, line {line}" if line else path
        raise UsageError(f"--chat_template: {place}: {error}; it has to be Jinja") from error
    return text
