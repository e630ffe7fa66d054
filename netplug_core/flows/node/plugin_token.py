"""Renews the plugin's token: one is issued, and the plugin's kubeconfig is replaced.

The node process does it where it has a service account, which is in a pod.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.installation.installer import IssuedToken, PluginAccess, TokenIssuer, render_kubeconfig

__all__ = ["PluginFile", "SecretHost", "renew_plugin_token"]


class SecretHost(Protocol):
    """The machine that the plugin's files are on."""

    def replace_secret(self, path: str, text: str) -> None:
        """Replace a file that only its owner may read, whole or not at all. Its folder must be there.

        Raises:
            OSError: it cannot be written.
        """
        ...


@frozen(kw_only=True)
class PluginFile:
    """The kubeconfig at ``path``, with a token of the service account ``account``.

    ``skips_tls_verification``: the plugin does not verify the server's certificate.
    """

    path: str
    account: str
    skips_tls_verification: bool = False


def renew_plugin_token(issuer: TokenIssuer, host: SecretHost, file: PluginFile, *, deadline: Deadline) -> IssuedToken:
    """Replace the plugin's kubeconfig by one with a new token.

    Raises:
        ConfigurationError, Unauthorized, Unavailable: as for :meth:`TokenIssuer.issue`.
        OSError: the file cannot be written.
    """
    issued = issuer.issue(file.account, deadline=deadline)
    authority = None if file.skips_tls_verification else issuer.read_certificate_authority()
    access = PluginAccess(server=issuer.server, certificate_authority=authority, token=issued.text)
    host.replace_secret(file.path, render_kubeconfig(access))
    return issued
