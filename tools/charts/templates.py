"""YAML with expressions of helm in it: objects whose members are marks, and the text that takes their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from attrs import define, field

from netplug_cli.ctl.yaml_documents import render_manifest

__all__ = ["Template"]

Json = Mapping[str, object]

_MARK: Final = "HELM{}MARK"
_MARKED: Final = re.compile(r"HELM(\d+)MARK")
_BLOCK: Final = re.compile(r"^( *)([\w.]+): HELM(\d+)MARK$")
_MEMBERS: Final = re.compile(r"^( *)HELM(\d+)MARK: ''$")


@define
class Template:
    """Makes the text of a template. Marks are made first, put into objects, and found again in their YAML."""

    _expressions: list[str] = field(factory=list)
    _blocks: set[int] = field(factory=set)

    def scalar(self, expression: str) -> str:
        """The mark of a text that an expression has."""
        self._expressions.append(expression)
        return _MARK.format(len(self._expressions) - 1)

    def block(self, values: str) -> str:
        """The mark of a member that is left out if the values are empty: an object or a list."""
        mark = self.scalar(values)
        self._blocks.add(len(self._expressions) - 1)
        return mark

    def members(self, values: str) -> dict[str, str]:
        """Further members of an object, which the values have."""
        return {self.block(values): ""}

    def render(self, *objects: Json) -> str:
        """The objects as YAML documents, with an expression in the place of each mark."""
        text = render_manifest(objects)
        if "{{" in text:
            raise ValueError("an object has braces, which helm would read")
        return "".join(f"{line}\n" for line in map(self._render_line, text.splitlines()))

    def _render_line(self, line: str) -> str:
        if found := _BLOCK.match(line):
            indent, key, number = found[1], found[2], int(found[3])
            if number in self._blocks:
                return self._conditional(number, indent, f"{indent}{key}:", len(indent) + 2)
        if found := _MEMBERS.match(line):
            return self._conditional(int(found[2]), found[1], "", len(found[1]))
        return _MARKED.sub(lambda mark: f"{{{{ {self._expressions[int(mark[1])]} }}}}", line)

    def _conditional(self, number: int, indent: str, head: str, depth: int) -> str:
        lines = [
            f"{indent}{{{{- with {self._expressions[number]} }}}}",
            *([head] if head else []),
            f"{' ' * depth}{{{{- toYaml . | nindent {depth} }}}}",
            f"{indent}{{{{- end }}}}",
        ]
        return "\n".join(lines)
