"""Finds whether the node process renews the plugin's token, and with what: in a pod, unless that is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import random

from attrs import frozen

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.placing import RunInContainer, run_here
from netplug_cli.node.tasks import TokenRefresh
from netplug_core.clock import Deadline
from netplug_core.flows.node.plugin_token import PluginFile, SecretHost, renew_plugin_token
from netplug_core.installation.installer import FILE_NAME, IssuedToken, TokenIssuer, parse_duration_s
from netplug_core.log import Level, Log

__all__ = ["find_token_refresh"]

_ACCOUNT = "netplug-cni-plugin"
_CONFIGURATIONS = "/etc/cni/net.d"
_RENEW_S = 20.0


def find_token_refresh(
    environ: Mapping[str, str],
    log: Log,
    in_pod: RunInContainer = run_here,
    *,
    account_folder: str = "",
    conf_dir: str = "",
) -> TokenRefresh | None:
    """What renews the token; None outside a pod, or where ``NETPLUG_MANAGE_CNI`` is ``false``.

    ``in_pod`` does what reads files of the pod; the kubeconfig is the host's. ``account_folder`` has the files of the
    pod's service account; empty: the usual one. ``conf_dir`` is the folder of the kubeconfig, if that of the host is
    mounted elsewhere.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST") or environ.get("NETPLUG_MANAGE_CNI") == "false":
        return None
    # Loads the client of the API server, which no process outside a pod needs for this.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.service_account import find_service_account

    clock = SystemClock()
    folder = account_folder or SERVICE_ACCOUNT_FOLDER
    account = in_pod(lambda: find_service_account(environ, clock=clock, folder=folder))
    if account is None:
        return None
    file = PluginFile(
        path=f"{conf_dir or environ.get('CNI_NET_DIR') or _CONFIGURATIONS}/{FILE_NAME}",
        account=environ.get("NETPLUG_CNI_SERVICE_ACCOUNT") or _ACCOUNT,
        skips_tls_verification=environ.get("SKIP_TLS_VERIFY") == "true",
    )
    return TokenRefresh(
        renew=partial(_renew, _IssuerOfPod(account, in_pod), HostMachine(), file, clock),
        find_stamps=lambda: in_pod(account.find_stamps),
        path=file.path,
        clock=clock,
        chance=random,
        log=log,
        interval_s=_find_interval_s(environ, log),
    )


@frozen
class _IssuerOfPod:
    """An issuer that reads its files in the pod."""

    inner: TokenIssuer
    in_pod: RunInContainer

    @property
    def server(self) -> str:
        return self.inner.server

    def read_certificate_authority(self) -> bytes:
        return self.in_pod(self.inner.read_certificate_authority)

    def issue(self, account: str, *, deadline: Deadline) -> IssuedToken:
        return self.in_pod(lambda: self.inner.issue(account, deadline=deadline))


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
