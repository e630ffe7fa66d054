"""Credentials that a program or a provider gives: the ``kubernetes`` package asks for them, as it knows them all.

Loading it costs more than everything else that a call does, so this module is loaded where a kubeconfig wants it only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from attrs import evolve
from kubernetes.client.configuration import Configuration
from kubernetes.config import load_kube_config_from_dict
from kubernetes.config.config_exception import ConfigException

from netplug_backends.kubernetes.credentials import Access, Pem
from netplug_core.errors import ConfigurationError

__all__ = ["with_provided"]


class _Listener(logging.Handler):
    """What the package logs instead of raising it: the first of it, without what the program itself said."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first; behind a full stop is the program's standard error, which may show anything."""
        self.first = self.first or record.getMessage().partition(". ")[0]


def with_provided(access: Access, where: str, user: Mapping[str, object], cluster: Mapping[str, object]) -> Access:
    """The access with the credentials that the program or the provider of a kubeconfig's user gives.

    ``user`` and ``cluster`` are the members of the two, ``where`` is what people call the first.

    Raises:
        ConfigurationError: it gives none; what it said on its standard error is not shown.
    """
    given = Configuration()
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
    }
    said = _Listener()
    root = logging.getLogger()
    root.addHandler(said)  # one that is there also keeps the package from writing to standard error
    try:
        load: Callable[..., None] = load_kube_config_from_dict  # it has no types
        load(document, client_configuration=given, persist_config=False)
    except ConfigException as error:
        raise ConfigurationError(where, "…", f"its credentials cannot be had: {error}") from None
    finally:
        root.removeHandler(said)
    # Releases of the package differ in what they call it, and agree on what is sent.
    header = given.auth_settings().get("BearerToken", {}).get("value") or ""
    scheme, _, token = header.partition(" ")
    if not token and not given.cert_file:
        reason = f": {said.first}" if said.first else ""
        raise ConfigurationError(where, "…", f"its program or provider gives no credentials{reason}")
    return evolve(
        access,
        token=token if scheme.lower() == "bearer" else "",
        certificate=Pem(path=given.cert_file or ""),
        key=Pem(path=given.key_file or ""),
    )
