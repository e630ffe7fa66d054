"""The client's key and certificate, the trusted roots, and the user.

Files are checked before every call and read again if they have changed, so a rotated certificate is used without a
restart. Unusable files are refused when the store is opened. If a later read fails, because a rotation is half done,
the earlier contents stay in use.
"""

from __future__ import annotations

import os
import re
import ssl
from threading import Lock

from attrs import field, frozen

from netplug_backends.host.atomic_files import memory_file, read_file
from netplug_core.errors import ConfigurationError, UnusableFile
from netplug_core.settings.model import DatastoreSettings

__all__ = ["Credentials", "TlsMaterial", "find_system_roots"]

_Stamp = tuple[int, int, int] | None  # modification time, size, inode; None if there is no file

_BEGIN = b"-----BEGIN "
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.+?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL)
_PEM_NAMES = {_CERTIFICATE: "certificate", _KEY: "private key"}
_INLINE_PAIR = ("etcd", "inline key and certificate")
_MAX_ROOTS_BYTES = 1 << 24
_INLINE_CA = ("etcd", "inline CA certificate")


@frozen(kw_only=True)
class TlsMaterial:
    """PEM texts: the client's key and certificate (both or neither) and the trusted roots.

    If the roots are empty, the machine's roots are trusted.
    """

    key: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    roots: bytes = field(default=b"", repr=False)


class Credentials:
    """The TLS material and the user that settings name.

    Raises:
        ConfigurationError: half of a pair is missing, files and inline texts are mixed, or a text is unusable.
    """

    def __init__(self, settings: DatastoreSettings) -> None:
        has_user = bool(settings.etcd_username and settings.etcd_password)
        self.user = settings.etcd_username if has_user else ""
        self.password = settings.etcd_password if has_user else ""
        self._settings = settings
        self._lock = Lock()
        _check_user(self.user, self.password)
        _check_pairs(settings)
        self._stamps = self._current_stamps()
        self._material = self._read()

    def material(self) -> TlsMaterial:
        """The material in the files now, or when they were last usable; the same object until they change."""
        with self._lock:
            stamps = self._current_stamps()
            if stamps != self._stamps:
                try:
                    self._material = self._read()
                except ConfigurationError:
                    return self._material  # the next call tries again
                self._stamps = stamps
            return self._material

    def _files(self) -> tuple[str, str, str]:
        return self._settings.etcd_key_file, self._settings.etcd_cert_file, self._settings.etcd_ca_cert_file

    def _current_stamps(self) -> tuple[_Stamp, ...]:
        return tuple(_stamp(path) for path in self._files() if path)

    def _read(self) -> TlsMaterial:
        settings = self._settings
        material = TlsMaterial(
            key=_pem("etcd_key_file", settings.etcd_key_file, settings.etcd_key, _KEY),
            certificate=_pem("etcd_cert_file", settings.etcd_cert_file, settings.etcd_cert, _CERTIFICATE),
            roots=_pem("etcd_ca_cert_file", settings.etcd_ca_cert_file, settings.etcd_ca_cert, _CERTIFICATE),
        )
        _check_material(settings, material)
        return material


def _check_user(user: str, password: str) -> None:
    """Refuse texts that are not UTF-8, which etcd's protocol requires; an environment may be in another encoding."""
    for where, text in (("etcd_username", user), ("etcd_password", password)):
        try:
            text.encode()
        except UnicodeEncodeError:  # its message contains the text
            raise ConfigurationError(where, "…", "it must be text in UTF-8") from None


def _check_pairs(settings: DatastoreSettings) -> None:
    has_inline = bool(settings.etcd_key or settings.etcd_cert)
    has_files = bool(settings.etcd_key_file or settings.etcd_cert_file)
    if (has_inline and has_files) or (settings.etcd_ca_cert and settings.etcd_ca_cert_file):
        raise ConfigurationError("etcd", "…", "Cannot mix inline certificate-key and certificate / key files")
    for where, name, other in (
        ("etcd_key_file", settings.etcd_key_file, settings.etcd_cert_file),
        ("etcd_cert_file", settings.etcd_cert_file, settings.etcd_key_file),
    ):
        if name and not other:
            raise ConfigurationError(where, name, "a client has a key and a certificate: give both files, or neither")
    if bool(settings.etcd_key) != bool(settings.etcd_cert):
        given = "key" if settings.etcd_key else "certificate"
        raise ConfigurationError(
            "etcd", f"inline {given}", "a client has a key and a certificate: give both, or neither"
        )


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _pem(where: str, path: str, inline: str, expected: re.Pattern[bytes]) -> bytes:
    """The PEM text of a file, or the inline text."""
    if not path:
        return inline.encode(errors="backslashreplace")  # a text that is not UTF-8 is refused as no PEM text
    try:
        text = read_file(path)
    except OSError as error:
        raise UnusableFile(where, path, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path with a zero byte
        raise UnusableFile(where, path, f"it cannot be read: {error}") from error
    if _BEGIN not in text:
        problem = "it holds no PEM text" if text.strip() else "it is empty"
        raise UnusableFile(where, path, problem)
    if not expected.search(text):  # for example, if the two files are swapped
        raise UnusableFile(where, path, f"it holds no {_PEM_NAMES[expected]}")
    return text


def _check_material(settings: DatastoreSettings, material: TlsMaterial) -> None:
    """Refuse unusable material with an error of ours, before a call fails with the library's."""
    if material.key:
        try:
            _load_pair(material)
        except (OSError, ValueError):  # an SSLError is an OSError; as a cause it could show the texts
            where, value = ("etcd_cert_file", settings.etcd_cert_file) if settings.etcd_cert_file else _INLINE_PAIR
            accepted = "key and certificate must be PEM texts without a passphrase, and belong together"
            raise ConfigurationError(where, value, accepted) from None
    if material.roots:
        try:
            _load_roots(material.roots)
        except (OSError, ValueError):
            where, value = (
                ("etcd_ca_cert_file", settings.etcd_ca_cert_file) if not settings.etcd_ca_cert else _INLINE_CA
            )
            raise ConfigurationError(where, value, "it must hold PEM certificates") from None


def _load_pair(material: TlsMaterial) -> None:
    # Each from its own text, as gRPC does: a certificate file that also contains the key is no key file.
    parts = [*_CERTIFICATE.findall(material.certificate), *_KEY.findall(material.key)]
    with memory_file(b"\n".join(parts)) as path:  # the standard library only reads files
        # Without a password, OpenSSL would ask for a passphrase at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(path, password="")


def _load_roots(roots: bytes) -> None:
    # Only the certificates: a bundle may have comments around them.
    certificates = b"\n".join(_CERTIFICATE.findall(roots))
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates.decode("ascii"))


def find_system_roots() -> bytes | None:
    """The roots that this machine trusts; None if it has no file of them."""
    path: str | None = ssl.get_default_verify_paths().cafile  # may be None, contrary to its type
    return read_file(path, _MAX_ROOTS_BYTES) if path else None
