"""The objects that a kubeconfig is made of, and how their members are read; errors name a place, never a secret.

``kubeconfig`` finds them, and hands some on to ``program`` and ``provided``.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import cast

from attrs import field, frozen

from netplug_backends.kubernetes.client.credentials import Pem
from netplug_core.errors import ConfigurationError

__all__ = ["KubeconfigEntry", "describe_type"]

_TYPE_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


@frozen
class KubeconfigEntry:
    """One object of a kubeconfig; errors name its place. Files that it names lie in ``folder``."""

    where: str
    members: Mapping[str, object] = field(repr=False)
    folder: str

    def text(self, name: str) -> str:
        """The text that a member is; empty where there is none."""
        value = self.members.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigurationError(f"{self.where}.{name}", describe_type(value), "a text is expected")
        return value

    def path(self, name: str) -> str:
        """The file that a member names; empty where it names none."""
        path = self.text(name)
        return os.path.join(self.folder, path) if path else ""

    def pem(self, name: str) -> Pem:
        """A file, or base64 of its content in the member that ends in ``-data``, which wins."""
        encoded = self.text(f"{name}-data")
        if not encoded:
            return Pem(path=self.path(name), where=f"{self.where}.{name}")
        where = f"{self.where}.{name}-data"
        try:
            data = base64.b64decode("".join(encoded.split()), validate=True)  # it may be folded into lines
        except ValueError:  # which it also is where there is a letter that base64 does not know at all
            data = b""
        if not data:
            # The value may be a key: it is not shown.
            raise ConfigurationError(where, "…", "base64 is expected")
        return Pem(data=data, where=where)

    def entry(self, name: str) -> KubeconfigEntry:
        """The object that a member is."""
        value = self.members.get(name)
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{self.where}.{name}", describe_type(value), "a mapping is expected")
        return KubeconfigEntry(f"{self.where}.{name}", cast("Mapping[str, object]", value), self.folder)

    def entries(self, name: str) -> tuple[KubeconfigEntry, ...]:
        """The objects of the list that a member is; none where there is no list."""
        items = {f"{name}[{position}]": item for position, item in enumerate(self._items(name))}
        whole = KubeconfigEntry(self.where, items, self.folder)
        return tuple(map(whole.entry, items))

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of the list that a member is; none where there is no list."""
        items = {f"{name}[{position}]": item for position, item in enumerate(self._items(name))}
        whole = KubeconfigEntry(self.where, items, self.folder)
        return tuple(map(whole.text, items))

    def refuse_unsupported(self, *names: str) -> None:
        """What a kubeconfig can say and this client does not do; passing it over would be to act as somebody else."""
        for name in names:
            if self.members.get(name):
                raise ConfigurationError(f"{self.where}.{name}", "…", "it is not supported; leave it out")

    def _items(self, name: str) -> list[object]:
        value = self.members.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ConfigurationError(f"{self.where}.{name}", describe_type(value), "a list is expected")
        return value


def describe_type(value: object) -> str:
    """What people call a value of that type; never the value, which may be a secret."""
    if value is None:
        return ""
    return _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
