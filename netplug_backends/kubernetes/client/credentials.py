"""Who we are to the API server, and how files that say so are read. ``access`` finds them, ``transport`` uses them."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from attrs import field, frozen

from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError

__all__ = [
    "ApiAccess",
    "FileReader",
    "FileStamp",
    "Pem",
    "TlsVerification",
    "describe_file",
    "find_file_stamp",
    "is_host",
    "parse_scheme",
]

FileStamp = tuple[int, int, int]
"""How a file looks from outside: it has another one when its content has changed."""


class TlsVerification(enum.Enum):
    """Whether the server must prove who it is. Only an explicit wish of the user's switches it off."""

    REQUIRED = "required"
    SKIPPED = "skipped"


@frozen(kw_only=True)
class Pem:
    """A certificate, a key or several of them: in a file, or as they are. Empty: there is none.

    ``where`` is the place that says so, where it is not the user who named the file.
    """

    path: str = ""
    data: bytes = field(default=b"", repr=False)
    where: str = field(default="", eq=False)

    def __bool__(self) -> bool:
        return bool(self.path or self.data)

    @property
    def label(self) -> str:
        """What people call it in an error."""
        return describe_file(self.where, self.path)

    def open_path(self, stack: ExitStack) -> str:
        """A path that a library can read until the stack ends; data get one that leads to memory and to no disk."""
        if not self.data:
            return self.path
        number = os.memfd_create("netplug", os.MFD_CLOEXEC)
        stack.callback(os.close, number)
        with open(number, "wb", closefd=False) as file:
            file.write(self.data)
        return f"/proc/self/fd/{number}"


@frozen(kw_only=True)
class ApiAccess:
    """The API's address, whom to trust there, and our credentials.

    ``tls_server_name`` is the name that the server's certificate must have where that is not the address's. ``login``
    asks somebody for the credentials by the deadline; None where they are all here. They are valid until
    ``expires_ns``, if that is known.
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
        """What the connection itself is made with and is in files."""
        return tuple(pem for pem in (self.certificate_authority, self.certificate, self.key) if pem.path)


class FileReader:
    """Reads small files and remembers how they looked."""

    def __init__(self) -> None:
        self.stamps: dict[str, FileStamp | None] = {}

    def record_stamp(self, path: str) -> FileStamp | None:
        """Remember how a file looks now; None where it cannot be seen."""
        found = self.stamps[path] = find_file_stamp(path)
        return found

    def check_pem(self, pem: Pem) -> None:
        """Remember how the file of a certificate or a key looks; errors as for ``bytes``."""
        self.read_bytes(pem.path, pem.where)

    def read_bytes(self, path: str, where: str = "") -> bytes:
        """What a file holds; ``where`` is the place that names it, if that is not the user.

        Raises:
            ConfigurationError: it cannot be read.
        """
        self.record_stamp(path)  # before reading: a change in between is seen at the next call
        try:
            with open(path, "rb") as file:
                return file.read()
        except (OSError, ValueError) as error:  # the latter where no file can have that name
            label, reason = describe_file(where, path), getattr(error, "strerror", "") or str(error)
            raise ConfigurationError(label, reason, "a readable file is expected") from error

    def read_text(self, path: str, where: str = "") -> str:
        """The text that a file holds, without the white space around it; arguments and errors as for ``bytes``."""
        try:
            return self.read_bytes(path, where).decode().strip()
        except UnicodeDecodeError:
            # Not as its cause, whose text would be the file's.
            raise ConfigurationError(describe_file(where, path), "", "a text file is expected") from None

    def read_token(self, path: str, where: str = "") -> str:
        """The token that a file holds; arguments and errors as for ``text``, and an empty file is refused."""
        token = self.read_text(path, where)
        if not token:  # it is being written, perhaps; without it we would be somebody else
            raise ConfigurationError(describe_file(where, path), "", "a token is expected")
        return token


def describe_file(where: str, path: str) -> str:
    """What people call a file that a place names; one of the two may be empty."""
    return f"{where} ({path})" if where and path else where or path


def parse_scheme(server: str) -> str:
    """Whether an address of an API is one of ``http`` or ``https``.

    Raises:
        ConfigurationError: it is of neither; or it has a user or a password in it, which is not shown.
    """
    shown = "…" if "@" in server else server  # before it stands a password, perhaps
    with suppress(ValueError):  # brackets that are not closed, or no number where a port should be
        address = urlsplit(server)
        is_place = is_host(address.hostname or "") and address.port != 0 and "@" not in address.netloc
        if address.scheme in ("http", "https") and is_place and _is_path(address.path):
            return address.scheme
    accepted = "a URL such as https://host:6443 is expected, without user and password"
    raise ConfigurationError("kubernetes API", shown, accepted)


def is_host(text: str) -> bool:
    """Whether a server may be called that: by a name in any language, or by an address."""
    try:
        text.encode("idna")
    except ValueError:
        return False
    return bool(text) and text.isprintable() and " " not in text and not text.startswith(".")


def _is_path(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def find_file_stamp(path: str) -> FileStamp | None:
    """How a file looks now; None where it cannot be seen."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
