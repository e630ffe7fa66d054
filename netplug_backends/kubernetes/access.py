"""Where the API answers, and how we prove who we are: from kubeconfigs, an API root, or a pod's own account.

``client`` asks for the :class:`Access` before every request. Files are looked at each time (one ``stat``) and read
again when they changed, so that a renewed token or certificate is used without a restart. Who has an access keeps it
while what it was made from makes no sense: somebody is in the middle of writing that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.credentials import Access, Pem, Reader, Stamp, Verification, scheme_of, stamp
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.netconf.model import KubernetesAccess

__all__ = ["AccessSource"]

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_WHERE = "kubernetes"
_INLINE = "kubeconfigInline"
_CERTIFICATE, _KEY = "k8s_client_certificate or K8S_CERT_FILE", "k8s_client_key or K8S_KEY_FILE"


@frozen
class _Loaded:
    access: Access
    stamps: Mapping[str, Stamp | None]

    @property
    def has_changed(self) -> bool:
        """Whether a file that it was made from looks different now."""
        return any(stamp(path) != known for path, known in self.stamps.items())

    def has_expired(self, clock: Clock) -> bool:
        """Whether whoever gave the credentials said that they would not be good any more."""
        return self.access.expires_ns is not None and clock.now_ns() >= self.access.expires_ns


@define
class AccessSource:
    """The access that some settings lead to, as it is now. Any number of threads may ask at once.

    ``environ`` says where a pod finds the API, and where the user's own kubeconfig is.
    """

    settings: KubernetesAccess
    environ: Mapping[str, str] = field(repr=False)
    _loaded: _Loaded | None = field(default=None, init=False, repr=False)
    _loading: Lock = field(factory=Lock, init=False, repr=False, eq=False)

    def current(self, *, deadline: Deadline) -> Access:
        """The access; read again if a file that it was made from has changed, or if its time is over.

        What was read again is another object, also where it says the same: a file may have new content under its name.

        Raises:
            ConfigurationError: there is none, or a file it needs cannot be read or makes no sense.
            Unavailable: whoever has to be asked for credentials did not answer by the deadline.
        """
        loaded = self._loaded
        if loaded is not None and not loaded.has_expired(deadline.clock) and not loaded.has_changed:
            return loaded.access
        # One asks for all: a program is not run by every thread that comes to need what it gives.
        if not self._loading.acquire(timeout=deadline.remaining_s):
            raise Unavailable(self.origin, "another call is still waiting for credentials")
        try:
            return self._renewed(deadline)
        finally:
            self._loading.release()

    @property
    def server(self) -> str:
        """Where the API is; nobody is asked for credentials. Errors are those of ``current``."""
        return self._said(Reader()).server

    def renew(self, refused: Access) -> None:
        """Read everything again when next asked, unless somebody did since that access, which was refused."""
        loaded = self._loaded
        if loaded is not None and loaded.access is refused:
            self._loaded = None

    @property
    def origin(self) -> str:
        """What people call the place that the access is from."""
        place, _ = self._place()
        return "k8s_api_root" if "@" in place else place  # a URL may be written with a password

    def _renewed(self, deadline: Deadline) -> Access:
        loaded = self._loaded  # which may be another thread's by now
        if loaded is None or loaded.has_expired(deadline.clock):
            loaded = self._loaded = self._load(deadline)
        elif loaded.has_changed:
            with suppress(ConfigurationError):  # half of a rotation is done: the next call looks again
                loaded = self._loaded = self._load(deadline)
        return loaded.access

    def _load(self, deadline: Deadline) -> _Loaded:
        read = Reader()
        access = self._said(read)
        for pem in access.files:
            read.require(pem)
        if access.login is not None:
            access = evolve(access.login(access, deadline), login=None)
        if not _may_be_sent(access.token):
            raise ConfigurationError(
                f"the token of {self.origin}", "…", "one line of letters, digits and signs is expected"
            )
        return _Loaded(access, read.stamps)

    def _said(self, read: Reader) -> Access:
        """What the settings say, before anybody is asked."""
        _, load = self._place()
        access = load(read)
        if self.settings.skips_verification:
            access = evolve(access, verification=Verification.SKIPPED)
        scheme_of(access.server)  # before anybody can see an address that has a password in it
        return access

    def _place(self) -> tuple[str, Callable[[Reader], Access]]:
        settings = self.settings
        if settings.kubeconfig_inline:
            return _INLINE, self._from_inline
        if settings.kubeconfig:
            return settings.kubeconfig, lambda read: self._from_files(_paths(settings.kubeconfig), read)
        if settings.api_root:
            return settings.api_root, self._from_root
        own = os.path.join(self.environ.get("HOME") or "/root", ".kube", "config")
        if os.path.exists(own):
            return own, lambda read: self._from_files((own,), read)
        if self.environ.get("KUBERNETES_SERVICE_HOST"):
            return "the pod's service account", self._from_account
        raise ConfigurationError(
            _WHERE, "", "name a kubeconfig or k8s_api_root: there is no other access to the orchestrator's API here"
        )

    def _from_inline(self, read: Reader) -> Access:
        from netplug_backends.kubernetes.kubeconfig import from_text

        return from_text(self.settings.kubeconfig_inline, _INLINE, self.settings.context, read)

    def _from_files(self, paths: tuple[str, ...], read: Reader) -> Access:
        from netplug_backends.kubernetes.kubeconfig import from_files

        return from_files(paths, self.settings.context, read)

    def _from_root(self, read: Reader) -> Access:
        del read
        settings = self.settings
        if bool(settings.certificate) is not bool(settings.key):
            present, missing = (_CERTIFICATE, _KEY) if settings.certificate else (_KEY, _CERTIFICATE)
            raise ConfigurationError(missing, "", f"it is needed beside {present}")
        return Access(
            server=settings.api_root,
            token=settings.token,
            authority=Pem(path=settings.certificate_authority),
            certificate=Pem(path=settings.certificate),
            key=Pem(path=settings.key),
        )

    def _from_account(self, read: Reader) -> Access:
        host, port = self.environ["KUBERNETES_SERVICE_HOST"], self.environ.get("KUBERNETES_SERVICE_PORT") or "443"
        return Access(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            token=read.token(f"{_ACCOUNT}/token"),
            authority=Pem(path=f"{_ACCOUNT}/ca.crt"),
        )


def _may_be_sent(token: str) -> bool:
    """Whether a header can hold a token; the library would show the one that it cannot."""
    return token.isascii() and token.isprintable()


def _paths(text: str) -> tuple[str, ...]:
    """The files that a setting names: one, or several with colons between them, as ``KUBECONFIG`` may."""
    return (text,) if os.path.exists(text) else tuple(filter(None, text.split(os.pathsep))) or (text,)
