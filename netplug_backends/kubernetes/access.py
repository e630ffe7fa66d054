"""Where the API answers, and how we prove who we are: from kubeconfigs, an API root, or a pod's own account.

``client`` asks for the :class:`Access` before every request. Files are looked at each time (one ``stat``) and read
again when they changed, so that a renewed token or certificate is used without a restart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.credentials import Access, Pem, Reader, Stamp, Verification, scheme_of, stamp
from netplug_core.errors import ConfigurationError
from netplug_core.netconf.model import KubernetesAccess

__all__ = ["AccessSource"]

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_WHERE = "kubernetes"
_INLINE = "kubeconfigInline"


@frozen
class _Loaded:
    access: Access
    stamps: Mapping[str, Stamp | None]


@define
class AccessSource:
    """The access that some settings lead to, as it is now.

    ``environ`` says where a pod finds the API, and where the user's own kubeconfig is.
    """

    settings: KubernetesAccess
    environ: Mapping[str, str] = field(repr=False)
    _loaded: _Loaded | None = field(default=None, init=False, repr=False)

    def current(self) -> Access:
        """The access; read again if a file that it was made from has changed.

        Raises:
            ConfigurationError: there is none, or a file it needs cannot be read or makes no sense.
        """
        loaded = self._loaded
        if loaded is None or any(stamp(path) != known for path, known in loaded.stamps.items()):
            loaded = self._loaded = self._load()
        return loaded.access

    def renew(self) -> None:
        """Read everything again when next asked: what there is was refused."""
        self._loaded = None

    @property
    def generation(self) -> object:
        """Changes its identity whenever something was read again, also where the access reads the same."""
        return self._loaded

    @property
    def origin(self) -> str:
        """What people call the place that the access is from."""
        place, _ = self._place()
        return "k8s_api_root" if "@" in place else place  # a URL may be written with a password

    def _load(self) -> _Loaded:
        read = Reader()
        _, load = self._place()
        access = load(read)
        if self.settings.skips_verification:
            access = evolve(access, verification=Verification.SKIPPED)
        scheme_of(access.server)  # before anybody can see an address that has a password in it
        if not _may_be_sent(access.token):
            raise ConfigurationError(
                f"the token of {self.origin}", "…", "one line of letters, digits and signs is expected"
            )
        for path in access.files:
            read.look(path)
        return _Loaded(access, read.stamps)

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
            token=read.text(f"{_ACCOUNT}/token"),
            authority=Pem(path=f"{_ACCOUNT}/ca.crt"),
        )


def _may_be_sent(token: str) -> bool:
    """Whether a header can hold a token; the library would show the one that it cannot."""
    return token.isascii() and token.isprintable()


def _paths(text: str) -> tuple[str, ...]:
    """The files that a setting names: one, or several with colons between them, as ``KUBECONFIG`` may."""
    return (text,) if os.path.exists(text) else tuple(filter(None, text.split(os.pathsep))) or (text,)
