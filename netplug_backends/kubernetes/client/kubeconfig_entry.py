"""Objects in a kubeconfig and how their members are read. Errors name the place, and never contain a secret.

``kubeconfig`` finds them and passes some to ``exec_plugin`` and ``auth_provider``.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

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
    """One object of a kubeconfig; errors name its place. Relative paths in it are relative to ``folder``."""

    where: str
    members: Mapping[str, object] = field(repr=False)
    folder: str

    def text(self, name: str) -> str:
        """A member that is a text; empty if it is missing."""
        value = self.members.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigurationError(f"{self.where}.{name}", describe_type(value), "a text is expected")
        return value

    def flag(self, name: str) -> bool:
        """A member that is true or false; false if it is missing. Another type is refused, as ``kubectl`` does."""
        value = self.members.get(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigurationError(f"{self.where}.{name}", describe_type(value), "true or false is expected")
        return bool(value)

    def path(self, name: str) -> str:
        """The path of the file that a member names; empty if it is missing."""
        path = self.text(name)
        return os.path.join(self.folder, path) if path else ""

    def pem(self, name: str) -> Pem:
        """Certificates or a key: a file, or base64 in the member that ends in ``-data``, which wins."""
        encoded = self.text(f"{name}-data")
        if not encoded:
            return Pem(path=self.path(name), where=f"{self.where}.{name}")
        where = f"{self.where}.{name}-data"
        try:
            data = base64.b64decode("".join(encoded.split()), validate=True)  # it may have line breaks
        except ValueError:
            data = b""
        if not data:
            # The value may be a key: it is not shown.
            raise ConfigurationError(where, "…", "base64 is expected")
        return Pem(data=data, where=where)

    def entry(self, name: str) -> KubeconfigEntry:
        """A member that is an object."""
        value = self.members.get(name)
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{self.where}.{name}", describe_type(value), "a mapping is expected")
        return KubeconfigEntry(f"{self.where}.{name}", value, self.folder)

    def entries(self, name: str) -> tuple[KubeconfigEntry, ...]:
        """The objects in a list; empty if it is missing."""
        items = {f"{name}[{position}]": item for position, item in enumerate(self._items(name))}
        whole = KubeconfigEntry(self.where, items, self.folder)
        return tuple(map(whole.entry, items))

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts in a list; empty if it is missing."""
        items = {f"{name}[{position}]": item for position, item in enumerate(self._items(name))}
        whole = KubeconfigEntry(self.where, items, self.folder)
        return tuple(map(whole.text, items))

    def refuse_unsupported(self, *names: str) -> None:
        """Refuse members that this client does not support: ignoring them would mean another identity."""
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
    """The type of a value, for error texts; the value itself may be a secret."""
    if value is None:
        return ""
    return _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
