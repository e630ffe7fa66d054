"""Fetches a token from an identity provider (``auth-provider`` in a kubeconfig), with the ``kubernetes`` package.

Loading that package takes longer than everything else in a call, so this module is loaded only if a kubeconfig names a
provider. The package has no timeout: a thread calls it, and is abandoned at the deadline. The package gets only the
provider's part of the kubeconfig, because it writes certificates and keys that it sees into files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import Thread

from attrs import evolve
from kubernetes.client.configuration import Configuration
from kubernetes.config import load_kube_config_from_dict
from kubernetes.config.config_exception import ConfigException

from netplug_backends.kubernetes.client.credentials import ApiAccess
from netplug_backends.kubernetes.client.kubeconfig_entry import KubeconfigEntry
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = ["fetch_provider_token"]

_CERTIFICATE_AUTHORITY = "idp-certificate-authority"


def fetch_provider_token(provider: KubeconfigEntry, access: ApiAccess, deadline: Deadline) -> ApiAccess:
    """The access with a token from a provider.

    Raises:
        ConfigurationError: the provider gives none.
        Unavailable: it did not answer by the deadline, or its answer cannot be used.
    """
    answer: list[str | Exception] = []

    def fetch() -> None:
        try:
            answer.append(_authorization_header(provider))
        except Exception as error:  # noqa: BLE001  # the waiting thread judges it
            answer.append(error)

    timeout_s = deadline.remaining_s
    thread = Thread(target=fetch, name=f"fetch credentials of {provider.where}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not answer:
        raise Unavailable(provider.where, f"the provider gave no credentials within {timeout_s:.1f} s")
    match answer[0]:
        case ConfigurationError() as error:
            raise error
        case ConfigException() as error:
            # Later lines show the command and its output.
            accepted = f"its credentials cannot be had: {str(error).partition(chr(10))[0]}"
            raise ConfigurationError(provider.where, "…", accepted) from None
        case Exception() as error:
            # Its text may be the provider's and quote what was sent.
            raise Unavailable(provider.where, f"the provider gave no credentials: {type(error).__name__}") from None
        case header:
            scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise ConfigurationError(provider.where, "…", "the provider gives no credentials")
    return evolve(access, token=token)


def _authorization_header(provider: KubeconfigEntry) -> str:
    """The Authorization header that the package would send."""
    with ExitStack() as stack:
        user = {"auth-provider": _provider_config(provider, stack)}
        document = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": "http://it"}}],  # http, so that no TLS files are prepared
            "users": [{"name": "it", "user": user}],
        }
        configuration = Configuration()
        load: Callable[..., None] = load_kube_config_from_dict  # it has no types
        load(document, client_configuration=configuration, persist_config=False)
    # The package's releases name the setting differently, but all of them have it here.
    return configuration.auth_settings().get("BearerToken", {}).get("value") or ""


def _provider_config(provider: KubeconfigEntry, stack: ExitStack) -> dict[str, object]:
    """A provider's configuration with a certificate authority: without one the package verifies no certificate."""
    import certifi  # not at the top: if `kubernetes` is missing too, the error must name that

    if not provider.members.get("config"):
        return dict(provider.members)
    config = provider.entry("config")
    path = config.pem(_CERTIFICATE_AUTHORITY).open_path(stack) or certifi.where()
    members = {**config.members, _CERTIFICATE_AUTHORITY: path}
    members.pop(f"{_CERTIFICATE_AUTHORITY}-data", None)
    return {**provider.members, "config": members}
