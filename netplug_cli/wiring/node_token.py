"""Finds whether the node process renews the plugin's token, and with what: in a pod, unless that is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import random

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_cli.node.token_refresh import TokenRefresh
from netplug_core.clock import Deadline
from netplug_core.flows.node.plugin_token import PluginFile, SecretHost, renew_plugin_token
from netplug_core.installation.kubeconfig import FILE_NAME
from netplug_core.installation.tokens import IssuedToken, TokenIssuer, parse_duration_s
from netplug_core.log import Level, Log

__all__ = ["find_token_refresh"]

_ACCOUNT = "netplug-cni-plugin"
_CONFIGURATIONS = "/etc/cni/net.d"
_RENEW_S = 20.0


def find_token_refresh(environ: Mapping[str, str], log: Log, *, account_folder: str = "") -> TokenRefresh | None:
    """What renews the token; None outside a pod, or where ``NETPLUG_MANAGE_CNI`` is ``false``.

    ``account_folder`` has the files of the pod's service account; empty: the usual one.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST") or environ.get("NETPLUG_MANAGE_CNI") == "false":
        return None
    # Loads the client of the API server, which no process outside a pod needs for this.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.service_account import find_service_account

    clock = SystemClock()
    account = find_service_account(environ, clock=clock, folder=account_folder or SERVICE_ACCOUNT_FOLDER)
    if account is None:
        return None
    file = PluginFile(
        path=f"{environ.get('CNI_NET_DIR') or _CONFIGURATIONS}/{FILE_NAME}",
        account=environ.get("NETPLUG_CNI_SERVICE_ACCOUNT") or _ACCOUNT,
        skips_tls_verification=environ.get("SKIP_TLS_VERIFY") == "true",
    )
    return TokenRefresh(
        renew=partial(_renew, account, HostMachine(), file, clock),
        find_stamps=account.find_stamps,
        path=file.path,
        clock=clock,
        chance=random,
        log=log,
        interval_s=_find_interval_s(environ, log),
    )


def _renew(issuer: TokenIssuer, host: SecretHost, file: PluginFile, clock: SystemClock) -> IssuedToken:
    return renew_plugin_token(issuer, host, file, deadline=Deadline.after(clock, _RENEW_S))


def _find_interval_s(environ: Mapping[str, str], log: Log) -> float | None:
    """The configured pause; None if there is none, or it is not usable, which is a line of the log."""
    text = environ.get("CNI_TOKEN_REFRESH_INTERVAL")
    if not text:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        log(Level.WARNING, "CNI_TOKEN_REFRESH_INTERVAL is not used", cause=str(error))
        return None
