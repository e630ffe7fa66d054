"""The API server's address and our credentials, as values; how their files and the objects of a kubeconfig are read."""

from __future__ import annotations

import base64
import enum
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from attrs import define, field, frozen

from netplug_backends.host.atomic_files import memory_file, read_file
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, UnusableFile

__all__ = [
    "ApiAccess", "FileReader", "FileStamp", "KubeconfigEntry", "Pem", "TlsVerification", "describe_file",
    "describe_type", "find_file_stamp", "in_cluster_server", "is_host", "parse_scheme",
]  # fmt: skip


FileStamp = tuple[int, int, int]
"""Modification time, size and inode of a file: they change with its content."""

_MAX_BYTES = 1 << 24  # a kubeconfig may name hundreds of clusters


class TlsVerification(enum.Enum):
    """Whether the server's certificate is verified. Only an explicit setting switches it off."""

    REQUIRED = "required"
    SKIPPED = "skipped"


@frozen(kw_only=True)
class Pem:
    """Certificates or a key, in a file or as data; empty if there are none.

    ``where`` is the place in a kubeconfig that names them, for error texts.
    """

    path: str = ""
    data: bytes = field(default=b"", repr=False)
    where: str = field(default="", eq=False)

    def __bool__(self) -> bool:
        return bool(self.path or self.data)

    @property
    def label(self) -> str:
        """How error texts name it."""
        return describe_file(self.where, self.path)

    def open_path(self, stack: ExitStack) -> str:
        """A path from which a library can read until the stack ends, empty if there are none.

        It is a memory file, never on a disk: the library would wait for ever at a path that is a pipe.

        Raises:
            UnusableFile: the file cannot be read.
        """
        if not self:
            return ""
        return stack.enter_context(memory_file(self.data or FileReader().read_content(self.path, self.where)))


@frozen(kw_only=True)
class ApiAccess:
    """The API server's address, the trusted authority, and our credentials.

    ``tls_server_name`` is the name that the server's certificate must have, if it is not the address's.
    ``fetch_credentials`` gets the credentials from a program or a provider by the deadline; None if they are complete.
    They are valid until ``expires_ns``, if that is known.
    """

    server: str
    tls_server_name: str = ""
    certificate_authority: Pem = Pem()
    verification: TlsVerification = TlsVerification.REQUIRED
    token: str = field(default="", repr=False)
    certificate: Pem = Pem()
    key: Pem = Pem()
    fetch_credentials: Callable[[ApiAccess, Deadline], ApiAccess] | None = field(default=None, repr=False, eq=False)
    expires_ns: int | None = None

    @property
    def pem_files(self) -> tuple[Pem, ...]:
        """The certificates and keys that are in files."""
        return tuple(pem for pem in (self.certificate_authority, self.certificate, self.key) if pem.path)


@define(eq=False, repr=False)
class FileReader:
    """Reads small files and records their stamps."""

    stamps: dict[str, FileStamp | None] = field(factory=dict, init=False)

    def record_stamp(self, path: str) -> FileStamp | None:
        """Record a file's stamp; None if the file cannot be found."""
        found = self.stamps[path] = find_file_stamp(path)
        return found

    def check_pem(self, pem: Pem) -> None:
        """Record the stamp of a certificate or key file, which must be readable; errors as for ``read_content``."""
        self.read_content(pem.path, pem.where)

    def read_content(self, path: str, where: str = "") -> bytes:
        """A file's content; ``where`` is the setting, or the place in a kubeconfig, that names the file.

        Raises:
            UnusableFile: it cannot be read.
        """
        self.record_stamp(path)  # before reading, so that the next call sees a change in between
        try:
            return read_file(path, _MAX_BYTES)
        except (OSError, ValueError) as error:  # ValueError: no file can have that name
            reason = getattr(error, "strerror", "") or str(error)
            raise UnusableFile(where or "file", path, f"it cannot be read: {reason}") from error

    def read_stripped(self, path: str, where: str = "") -> str:
        """A file's text without surrounding white space; arguments and errors as for ``read_content``."""
        try:
            return self.read_content(path, where).decode().strip()
        except UnicodeDecodeError:
            # Without the cause: its text contains the file's.
            raise UnusableFile(describe_file(where, path), "", "a text file is expected") from None

    def read_token(self, path: str, where: str = "") -> str:
        """The token in a file; arguments and errors as for ``read_stripped``, and an empty file is refused."""
        token = self.read_stripped(path, where)
        if not token:  # it may be half written; without a token the server would take us for an anonymous user
            raise UnusableFile(describe_file(where, path), "", "a token is expected")
        return token


def describe_file(where: str, path: str) -> str:
    """How error texts name a file; the place or the path may be empty."""
    return f"{where} ({path})" if where and path else where or path


def parse_scheme(server: str) -> str:
    """The scheme of an API server's URL: ``http`` or ``https``.

    Raises:
        ConfigurationError: it has another one, or contains a user or a password, which is not shown.
    """
    shown = "…" if "@" in server else server  # it may contain a password
    with suppress(ValueError):  # brackets that are not closed, or a port that is not a number
        address = urlsplit(server)
        is_place = is_host(address.hostname or "") and address.port != 0 and "@" not in address.netloc
        if address.scheme in ("http", "https") and is_place and _is_path(address.path):
            return address.scheme
    accepted = "a URL such as https://host:6443 is expected, without user and password"
    raise ConfigurationError("kubernetes API", shown, accepted)


def in_cluster_server(environ: Mapping[str, str]) -> str:
    """The API's URL that the environment of a pod names; empty if it names none."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "").removeprefix("[").removesuffix("]")
    port = environ.get("KUBERNETES_SERVICE_PORT") or "443"
    protocol = environ.get("KUBERNETES_SERVICE_PROTOCOL") or "https"
    shown = f"[{host}]" if ":" in host else host
    return f"{protocol}://{shown}:{port}" if host else ""


def is_host(text: str) -> bool:
    """Whether a text is a host: a name in any language, or an address."""
    try:
        text.encode("idna")
    except ValueError:
        return False
    return bool(text) and text.isprintable() and " " not in text and not text.startswith(".")


def _is_path(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def find_file_stamp(path: str) -> FileStamp | None:
    """A file's stamp; None if the file cannot be found."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# --- objects in a kubeconfig -----------------------------------------------------------------------------------------

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
