"""Finds the API server and our credentials: in kubeconfigs, from an API root, or in a pod's service account.

``apiclient`` calls it before every request. Each time the files are checked (one ``stat`` each) and read again if they
have changed, so a renewed token or certificate is used without a restart. If a changed file is unusable, the earlier
access stays in use: the file may be half written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.client.credentials import (
    ApiAccess,
    FileReader,
    FileStamp,
    Pem,
    TlsVerification,
    find_file_stamp,
    in_cluster_server,
    parse_scheme,
)
from netplug_backends.kubernetes.client.kubeconfig import from_files, from_text
from netplug_core.addressing import without_ipv4_brackets
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import ConfigurationError, Unavailable, UnusableFile
from netplug_core.settings.model import KubernetesAccess

__all__ = ["SERVICE_ACCOUNT_FOLDER", "AccessSource"]

SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the files of its service account."""

_WHERE = "kubernetes"
_INLINE = "kubeconfigInline"
_ACCOUNT = "the pod's service account"
_CERTIFICATE, _KEY = "k8s_client_certificate or K8S_CERT_FILE", "k8s_client_key or K8S_KEY_FILE"


class _NoAccess(ConfigurationError):
    """Nothing says where the API server is."""

    def __str__(self) -> str:
        return f"{self.where}: nothing says where the API server is: {self.accepted}"


@frozen
class _LoadedAccess:
    access: ApiAccess
    stamps: Mapping[str, FileStamp | None]

    @property
    def has_changed(self) -> bool:
        """Whether a file that it was read from has changed."""
        return any(find_file_stamp(path) != known for path, known in self.stamps.items())

    def has_expired(self, clock: Clock) -> bool:
        """Whether the credentials have reached their expiry time."""
        return self.access.expires_ns is not None and clock.now_ns() >= self.access.expires_ns


@define
class AccessSource:
    """The current access for some settings, for any number of threads.

    ``environ`` is the environment: it has the API's address in a pod, and the user's home folder. ``account_folder``
    has the files of a service account, which is then the only access that is looked for.
    """

    settings: KubernetesAccess
    environ: Mapping[str, str] = field(repr=False)
    account_folder: str = ""
    _loaded: _LoadedAccess | None = field(default=None, init=False, repr=False)
    _loading: Lock = field(factory=Lock, init=False, repr=False, eq=False)

    def current(self, *, deadline: Deadline) -> ApiAccess:
        """The access; read again if one of its files has changed, or if the credentials have expired.

        An access that was read again is another object even if it is equal: its files may have new contents.

        Raises:
            ConfigurationError: there is none, or a file cannot be read or decoded.
            Unavailable: the source of the credentials did not answer by the deadline.
        """
        loaded = self._loaded
        if loaded is not None and not loaded.has_expired(deadline.clock) and not loaded.has_changed:
            return loaded.access
        # One thread loads for all, so that a credential program is not run once per thread.
        if not self._loading.acquire(timeout=deadline.remaining_s):
            raise Unavailable(self.origin, "another call is still waiting for credentials")
        try:
            return self._reloaded(deadline)
        finally:
            self._loading.release()

    @property
    def loaded(self) -> ApiAccess | None:
        """The access that the last request used; None if there was none."""
        return None if self._loaded is None else self._loaded.access

    @property
    def server(self) -> str:
        """The API's URL; credentials are not fetched. Errors are those of ``current``."""
        return self._configured_access(FileReader()).server

    def invalidate(self, refused: ApiAccess) -> None:
        """Discard an access that the server refused, unless another thread has replaced it already."""
        loaded = self._loaded
        if loaded is not None and loaded.access is refused:
            self._loaded = None

    @property
    def origin(self) -> str:
        """Where the access comes from, as error texts name it."""
        place, _ = self._find_origin()
        return "k8s_api_root" if "@" in place else place  # a URL may contain a password

    def _reloaded(self, deadline: Deadline) -> ApiAccess:
        loaded = self._loaded  # another thread may have replaced it
        if loaded is None or loaded.has_expired(deadline.clock):
            loaded = self._loaded = self._load(deadline)
        elif loaded.has_changed:
            with suppress(ConfigurationError):  # a rotation is half done: the next call tries again
                loaded = self._loaded = self._load(deadline)
        return loaded.access

    def _load(self, deadline: Deadline) -> _LoadedAccess:
        read = FileReader()
        access = self._configured_access(read)
        for pem in access.pem_files:
            read.check_pem(pem)
        if access.fetch_credentials is not None:
            access = evolve(access.fetch_credentials(access, deadline), fetch_credentials=None)
        if not _is_header_text(access.token):
            raise UnusableFile(f"the token of {self.origin}", "…", "one line of letters, digits and signs is expected")
        return _LoadedAccess(access, read.stamps)

    def _configured_access(self, reader: FileReader) -> ApiAccess:
        """The access that the settings name, before credentials are fetched."""
        _, load = self._find_origin()
        access = load(reader)
        access = evolve(access, server=without_ipv4_brackets(access.server))
        if self.settings.skips_tls_verification:
            access = evolve(access, verification=TlsVerification.SKIPPED)
        parse_scheme(access.server)  # refuses a URL with a password before it is shown anywhere
        return access

    def _find_origin(self) -> tuple[str, Callable[[FileReader], ApiAccess]]:
        settings = self.settings
        if self.account_folder:
            return _ACCOUNT, self._from_account
        if settings.kubeconfig_inline:
            return _INLINE, self._from_inline
        if settings.kubeconfig:
            return settings.kubeconfig, lambda read: self._from_files(_kubeconfig_paths(settings.kubeconfig), read)
        if settings.api_root:
            return settings.api_root, self._from_root
        own = os.path.join(self.environ.get("HOME") or "/root", ".kube", "config")
        if os.path.exists(own):
            return own, lambda read: self._from_files((own,), read)
        if self.environ.get("KUBERNETES_SERVICE_HOST"):
            return _ACCOUNT, self._from_account
        raise _NoAccess(_WHERE, "", f"name a kubeconfig (KUBECONFIG=FILE) or k8s_api_root; {own} does not exist")

    def _from_inline(self, reader: FileReader) -> ApiAccess:
        return from_text(self.settings.kubeconfig_inline, _INLINE, self.settings.context, reader)

    def _from_files(self, paths: tuple[str, ...], reader: FileReader) -> ApiAccess:
        return from_files(paths, self.settings.context, reader)

    def _from_root(self, reader: FileReader) -> ApiAccess:
        del reader
        settings = self.settings
        if bool(settings.certificate) is not bool(settings.key):
            present, missing = (_CERTIFICATE, _KEY) if settings.certificate else (_KEY, _CERTIFICATE)
            raise ConfigurationError(missing, "", f"it is needed beside {present}")
        return ApiAccess(
            server=settings.api_root,
            token=settings.token,
            certificate_authority=Pem(path=settings.certificate_authority),
            certificate=Pem(path=settings.certificate),
            key=Pem(path=settings.key),
        )

    def _from_account(self, reader: FileReader) -> ApiAccess:
        folder = self.account_folder or SERVICE_ACCOUNT_FOLDER
        return ApiAccess(
            server=in_cluster_server(self.environ),
            token=reader.read_token(f"{folder}/token"),
            certificate_authority=Pem(path=f"{folder}/ca.crt"),
        )


def _is_header_text(token: str) -> bool:
    """Whether a header can contain a token; the library's error would show one that it cannot."""
    return token.isascii() and token.isprintable()


def _kubeconfig_paths(text: str) -> tuple[str, ...]:
    """The files that a setting names: one, or several separated by colons, as in ``KUBECONFIG``."""
    return (text,) if os.path.exists(text) else tuple(filter(None, text.split(os.pathsep))) or (text,)
