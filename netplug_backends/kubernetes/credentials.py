"""Who we are to the API server, and how files that say so are read. ``access`` finds them, ``transport`` uses them."""

from __future__ import annotations

import enum
import os
from contextlib import suppress
from urllib.parse import urlsplit

from attrs import field, frozen

from netplug_core.errors import ConfigurationError

__all__ = ["Access", "Pem", "Reader", "Stamp", "Verification", "scheme_of", "stamp"]

Stamp = tuple[int, int, int]
"""How a file looks from outside: it has another one when its content has changed."""


class Verification(enum.Enum):
    """Whether the server must prove who it is. Only an explicit wish of the user's switches it off."""

    REQUIRED = "required"
    SKIPPED = "skipped"


@frozen(kw_only=True)
class Pem:
    """A certificate, a key or several of them: in a file, or as they are. Empty: there is none."""

    path: str = ""
    data: bytes = field(default=b"", repr=False)

    def __bool__(self) -> bool:
        return bool(self.path or self.data)


@frozen(kw_only=True)
class Access:
    """The API's address, whom to trust there, and our credentials.

    ``server_name`` is the name that the server's certificate must have where that is not the address's.
    """

    server: str
    server_name: str = ""
    authority: Pem = Pem()
    verification: Verification = Verification.REQUIRED
    token: str = field(default="", repr=False)
    certificate: Pem = Pem()
    key: Pem = Pem()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the connection itself is made with."""
        return tuple(pem.path for pem in (self.authority, self.certificate, self.key) if pem.path)


class Reader:
    """Reads small files and remembers how they looked."""

    def __init__(self) -> None:
        self.stamps: dict[str, Stamp | None] = {}

    def look(self, path: str) -> Stamp | None:
        """Remember how a file looks now; None where it cannot be seen."""
        found = self.stamps[path] = stamp(path)
        return found

    def bytes(self, path: str) -> bytes:
        """What a file holds.

        Raises:
            ConfigurationError: it cannot be read.
        """
        self.look(path)  # before reading: a change in between is seen at the next call
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise ConfigurationError(path, error.strerror or str(error), "a readable file is expected") from error

    def text(self, path: str) -> str:
        """The text that a file holds, without the white space around it; errors as for ``bytes``."""
        try:
            return self.bytes(path).decode().strip()
        except UnicodeDecodeError:
            # Not as its cause, whose text would be the file's.
            raise ConfigurationError(path, "", "a text file is expected") from None


def scheme_of(server: str) -> str:
    """Whether an address of an API is one of ``http`` or ``https``.

    Raises:
        ConfigurationError: it is of neither; or it has a user or a password in it, which is not shown.
    """
    shown = "…" if "@" in server else server  # before it stands a password, perhaps
    with suppress(ValueError):  # what cannot be a name of a host, or a number where a port should be
        address = urlsplit(server)
        host = (address.hostname or "").encode("idna")
        if address.scheme in ("http", "https") and host and address.port != 0 and "@" not in address.netloc:
            return address.scheme
    accepted = "a URL such as https://host:6443 is expected, without user and password"
    raise ConfigurationError("kubernetes API", shown, accepted)


def stamp(path: str) -> Stamp | None:
    """How a file looks now; None where it cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
