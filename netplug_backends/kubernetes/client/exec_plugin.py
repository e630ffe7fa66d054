"""Credentials that a program issues: ``exec`` and ``auth-provider`` of a kubeconfig. Loaded by need.

The ``kubernetes`` package could run it too. But it has no timeout, and it writes certificates and keys into files that
it removes only at a regular exit of the process, which the plugin does not have.

Source: Kubernetes, "client-go credential plugins", and the API group ``client.authentication.k8s.io``.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Thread

from attrs import evolve
from kubernetes.client.configuration import Configuration
from kubernetes.config import load_kube_config_from_dict
from kubernetes.config.config_exception import ConfigException

from netplug_backends.kubernetes.client.credentials import ApiAccess, FileReader, KubeconfigEntry, Pem, TlsVerification
from netplug_core.clock import Deadline, parse_time
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = [
    "fetch_provider_token", "run_exec_plugin",
]  # fmt: skip


# --- auth provider ---------------------------------------------------------------------------------------------------


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


# --- exec plugin -----------------------------------------------------------------------------------------------------


_API_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_API_GROUP}/v1", f"{_API_GROUP}/v1beta1")
_KIND = "ExecCredential"


def run_exec_plugin(
    exec_config: KubeconfigEntry, cluster: KubeconfigEntry, access: ApiAccess, deadline: Deadline
) -> ApiAccess:
    """The access with the credentials from a program.

    Raises:
        ConfigurationError: it cannot be run, or returns no credentials; its output is not shown.
        Unavailable: it did not end by the deadline; it is killed with its session.
    """
    version = exec_config.text("apiVersion")
    if version not in _VERSIONS:
        raise ConfigurationError(f"{exec_config.where}.apiVersion", version, f"{' or '.join(_VERSIONS)} is expected")
    if exec_config.text("interactiveMode") == "Always":
        raise ConfigurationError(f"{exec_config.where}.interactiveMode", "Always", "nobody is there to be asked")
    request = {"apiVersion": version, "kind": _KIND, "spec": _spec(exec_config, cluster, access)}
    try:
        text = json.dumps(request)
    except (TypeError, ValueError, RecursionError):  # YAML has values that JSON has not
        raise ConfigurationError(f"{cluster.where}.extensions", "…", "what JSON can say is expected") from None
    return _with_credentials(access, _status(exec_config, version, _output(exec_config, text, deadline)))


def _spec(exec_config: KubeconfigEntry, cluster: KubeconfigEntry, access: ApiAccess) -> dict[str, object]:
    if not exec_config.flag("provideClusterInfo"):
        return {"interactive": False}
    cluster_info: dict[str, object] = {"server": access.server}
    if access.tls_server_name:
        cluster_info["tls-server-name"] = access.tls_server_name
    if access.verification is TlsVerification.SKIPPED:
        cluster_info["insecure-skip-tls-verify"] = True
    if access.certificate_authority:
        authority = access.certificate_authority
        data = authority.data or FileReader().read_content(authority.path, authority.where)
        cluster_info["certificate-authority-data"] = base64.b64encode(data).decode()
    for extension in cluster.entries("extensions"):
        if extension.text("name") == f"{_API_GROUP}/exec":
            cluster_info["config"] = extension.members.get("extension")
    return {"interactive": False, "cluster": cluster_info}


def _output(exec_config: KubeconfigEntry, request: str, deadline: Deadline) -> bytes:
    command = exec_config.text("command")
    if os.path.dirname(command) and exec_config.folder:  # a path with a folder is relative to the kubeconfig
        command = os.path.join(exec_config.folder, command.removeprefix("./"))
    environ = {**os.environ, "KUBERNETES_EXEC_INFO": request}
    environ |= {variable.text("name"): variable.text("value") for variable in exec_config.entries("env")}
    timeout_s = deadline.remaining_s
    try:
        process = subprocess.Popen(
            [command, *exec_config.texts("args")],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may contain secrets
            start_new_session=True,  # so that its own processes are killed with it
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise ConfigurationError(f"{exec_config.where}.command", command, f"it cannot be run: {reason}") from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            with suppress(OSError):  # it may have ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            what = f"{exec_config.where}: the program {command}"
            raise Unavailable(what, f"it gave no credentials within {timeout_s:.1f} s") from None
    if process.returncode:
        raise _plugin_failed(exec_config, f"it ended with {process.returncode}, and what it said is not shown")
    return output


def _status(exec_config: KubeconfigEntry, version: str, output: bytes) -> KubeconfigEntry:
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != _KIND or answer.get("apiVersion") != version:
        raise _plugin_failed(exec_config, f"what it said is no {_KIND} of {version}")
    return KubeconfigEntry(f"{exec_config.where} (its answer)", answer, "").entry("status")


def _with_credentials(access: ApiAccess, status: KubeconfigEntry) -> ApiAccess:
    token, certificate, key = map(status.text, ("token", "clientCertificateData", "clientKeyData"))
    if not (token or certificate) or bool(certificate) is not bool(key):
        accepted = "a token, or clientCertificateData and clientKeyData, are expected"
        raise ConfigurationError(status.where, "…", accepted)
    renewed = evolve(access, token=token, expires_ns=_expiry(status))
    if not certificate:
        return renewed
    names = (f"{status.where}.{name}" for name in ("clientCertificateData", "clientKeyData"))
    pair = (
        Pem(data=text.encode(errors="replace"), where=where)
        for text, where in zip((certificate, key), names, strict=True)
    )
    return evolve(renewed, certificate=next(pair), key=next(pair))


def _expiry(status: KubeconfigEntry) -> int | None:
    text = status.text("expirationTimestamp")
    try:
        return parse_time(text) if text else None
    except ValueError:
        where = f"{status.where}.expirationTimestamp"
        raise ConfigurationError(where, text, "a time such as 2026-01-31T10:00:00Z is expected") from None


def _plugin_failed(exec_config: KubeconfigEntry, reason: str) -> ConfigurationError:
    return ConfigurationError(
        exec_config.where, exec_config.text("command"), f"the program gives no credentials: {reason}"
    )
