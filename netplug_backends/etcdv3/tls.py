"""Keys, certificates and roots for the members that are spoken to over TLS, and the user: what proves who is who.

Files are looked at before every call and read again when they changed, so that a rotated certificate is used without
a restart. What cannot be used is refused when the store is opened; a later reading that fails (half of a rotation is
done) leaves what was read before in use.
"""

from __future__ import annotations

import os
import re
import ssl
from threading import Lock

from attrs import field, frozen

from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import DatastoreSettings

__all__ = ["Credentials", "TlsMaterial", "find_system_roots"]

_Stamp = tuple[int, int, int] | None  # time of change, size, inode; None where there is no file

_BEGIN = b"-----BEGIN "
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.+?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL)
_PEM_NAMES = {_CERTIFICATE: "certificate", _KEY: "private key"}
_INLINE_PAIR = ("etcd", "inline key and certificate")
_INLINE_CA = ("etcd", "inline CA certificate")


@frozen(kw_only=True)
class TlsMaterial:
    """PEM texts: a client's key and certificate (both or neither) and the roots that are trusted.

    Empty roots mean those that this machine trusts.
    """

    key: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    roots: bytes = field(default=b"", repr=False)


class Credentials:
    """What settings say of TLS and of the user.

    Raises:
        ConfigurationError: a half of a pair is missing, files and inline texts are mixed, or something is unusable.
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
        """What the files hold now, or held when they were last in order; the same object until they change."""
        with self._lock:
            stamps = self._current_stamps()
            if stamps != self._stamps:
                try:
                    self._material = self._read()
                except ConfigurationError:
                    return self._material  # looked at again by the next call
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
    """Refuse what etcd's protocol cannot carry, as of an environment in another encoding."""
    for where, text in (("etcd_username", user), ("etcd_password", password)):
        try:
            text.encode()
        except UnicodeEncodeError:  # which shows the text
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
    """The PEM text of a file, or the one given in its place."""
    if not path:
        return inline.encode(errors="backslashreplace")  # what no bytes stand for is no PEM text, and refused as that
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise ConfigurationError(where, path, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path with a zero byte
        raise ConfigurationError(where, path, f"it cannot be read: {error}") from error
    if _BEGIN not in text:
        problem = "it holds no PEM text" if text.strip() else "it is empty"
        raise ConfigurationError(where, path, problem)
    if not expected.search(text):  # as where two files changed places
        raise ConfigurationError(where, path, f"it holds no {_PEM_NAMES[expected]}")
    return text


def _check_material(settings: DatastoreSettings, material: TlsMaterial) -> None:
    """Refuse what TLS could not use: better now, in words, than at every call, in those of a library."""
    if material.key:
        try:
            _load_pair(material)
        except (OSError, ValueError):  # an SSLError is an OSError; the cause could show what the texts hold
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
    # Each from its own text, as gRPC takes them: in a key's place a certificate is none, also when it brings its key.
    parts = [*_CERTIFICATE.findall(material.certificate), *_KEY.findall(material.key)]
    # The standard library only reads files; one in memory leaves no key on a disk.
    descriptor = os.memfd_create("netplug", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(b"\n".join(parts))
        # An empty passphrase, or OpenSSL would ask for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)


def _load_roots(roots: bytes) -> None:
    # Only the certificates themselves: what stands around them in a bundle is for people.
    certificates = b"\n".join(_CERTIFICATE.findall(roots))
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates.decode("ascii"))


def find_system_roots() -> bytes | None:
    """The roots that this machine trusts; None when it has no file of them."""
    path: str | None = ssl.get_default_verify_paths().cafile  # the library's types know of no machine without one
    if path:
        with open(path, "rb") as file:
            return file.read()
    return None
