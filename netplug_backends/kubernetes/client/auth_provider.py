"""Tokens that an identity provider gives: the ``kubernetes`` package asks for them, as it knows the providers.

Loading it costs more than everything else that a call does, so this module is loaded where a kubeconfig names one only
(``auth-provider``; programs are asked by ``program``). The package knows of no deadline, so it is left behind where it
takes too long; and it is shown nothing but the provider, lest it put certificates and keys into files.
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
    """The access with the token that a provider gives.

    Raises:
        ConfigurationError: it gives none.
        Unavailable: it did not answer by the deadline, or in a way that the package does not know.
    """
    answer: list[str | Exception] = []

    def ask() -> None:
        try:
            answer.append(_authorization_header(provider))
        except Exception as error:  # noqa: BLE001  # it belongs to the thread that asked
            answer.append(error)

    given_s = deadline.remaining_s
    thread = Thread(target=ask, name=f"ask {provider.where}", daemon=True)
    thread.start()
    thread.join(given_s)
    if not answer:
        raise Unavailable(provider.where, f"the provider gave no credentials within {given_s:.1f} s")
    match answer[0]:
        case ConfigurationError() as error:
            raise error
        case ConfigException() as error:
            # After its first line it says what it ran, and what that said.
            accepted = f"its credentials cannot be had: {str(error).partition(chr(10))[0]}"
            raise ConfigurationError(provider.where, "…", accepted) from None
        case Exception() as error:
            # Its text may be the provider's, and quote what it was sent.
            raise Unavailable(provider.where, f"the provider gave no credentials: {type(error).__name__}") from None
        case header:
            scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise ConfigurationError(provider.where, "…", "the provider gives no credentials")
    return evolve(access, token=token)


def _authorization_header(provider: KubeconfigEntry) -> str:
    """What the package would send to say who we are."""
    with ExitStack() as stack:
        user = {"auth-provider": _provider_config(provider, stack)}
        document = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": "http://it"}}],  # in plain, so nothing is prepared for it
            "users": [{"name": "it", "user": user}],
        }
        given = Configuration()
        load: Callable[..., None] = load_kube_config_from_dict  # it has no types
        load(document, client_configuration=given, persist_config=False)
    # Releases of the package differ in what they call it, and agree on what is sent.
    return given.auth_settings().get("BearerToken", {}).get("value") or ""


def _provider_config(provider: KubeconfigEntry, stack: ExitStack) -> dict[str, object]:
    """What is said of a provider, and always whom to trust: else the package would believe whoever answers."""
    import certifi  # not above: of the two it is the package whose absence is to be told

    if not provider.members.get("config"):
        return dict(provider.members)
    config = provider.entry("config")
    path = config.pem(_CERTIFICATE_AUTHORITY).open_path(stack) or certifi.where()
    told = {**config.members, _CERTIFICATE_AUTHORITY: path}
    told.pop(f"{_CERTIFICATE_AUTHORITY}-data", None)
    return {**provider.members, "config": told}
