"""``-o`` of ``get``: which output a person asked for."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import click

from netplug_cli.ctl.outputs.columns import CustomColumns, parse_columns
from netplug_cli.ctl.outputs.paths import PathError
from netplug_cli.ctl.outputs.templates import Template, parse_template
from netplug_cli.ctl.tables import Width

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["OUTPUT", "ObjectFormat", "OutputFormat"]


class ObjectFormat(enum.Enum):
    """An output without a table: whole objects, or their kinds and names."""

    YAML = "yaml"
    JSON = "json"
    NAME = "name"


OutputFormat: TypeAlias = Width | ObjectFormat | CustomColumns | Template

_WORDS: dict[str, OutputFormat] = {
    **{width.value: width for width in Width},
    **{format_.value: format_ for format_ in ObjectFormat},
}
_PARSERS: dict[str, Callable[[str], OutputFormat]] = {"custom-columns": parse_columns, "jsonpath": parse_template}
_GO_TEMPLATES = ("go-template", "go-template-file", "template", "templatefile")
_EXAMPLE = """jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'"""
_ALL = ", ".join((*_WORDS, "custom-columns=COLUMNS", "jsonpath=TEMPLATE"))


class _OutputType(click.ParamType[OutputFormat]):
    """The value of ``-o``."""

    name = "format"

    def convert(
        self, value: str | OutputFormat, param: click.Parameter | None, ctx: click.Context | None
    ) -> OutputFormat:
        """The output; an error of the command line for anything else."""
        if not isinstance(value, str):
            return value
        if value in _WORDS:
            return _WORDS[value]
        word, _, text = value.partition("=")
        if word in _GO_TEMPLATES:
            self.fail(f"{word} is not offered: use {_EXAMPLE}, or custom-columns=NAME:.metadata.name", param, ctx)
        if word not in _PARSERS:
            self.fail(f"{value!r} is none of {_ALL}", param, ctx)
        try:
            return _PARSERS[word](text)
        except PathError as error:
            self.fail(f"{word}, {error}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """The words that begin as typed."""
        from click.shell_completion import CompletionItem

        words = (*_WORDS, *(f"{word}=" for word in _PARSERS))
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


OUTPUT = click.option(
    "-o", "--output", type=_OutputType(), default=Width.NARROW.value, show_default=True, metavar="FORMAT",
    help=f"One of {_ALL}.",
)  # fmt: skip
"""``-o`` and ``--output``."""
