"""Kubeconfigs for tests, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.credentials import ApiAccess
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.settings.model import KubernetesAccess

__all__ = ["CLUSTER", "SECRET", "access", "error_of", "kubeconfig", "program", "refusal", "soon", "source_of"]

SECRET = "s3cret-token"  # noqa: S105  # planted, and searched for
CLUSTER: dict[str, object] = {"server": "https://api:6443", "certificate-authority": "ca.pem"}


def soon(seconds: float = 60.0) -> Deadline:
    """A deadline that nothing misses on a machine that works, unless the test wants a nearer one."""
    return Deadline.after(SystemClock(), seconds)


def kubeconfig(folder: Path, user: Mapping[str, object], cluster: Mapping[str, object] | None = None) -> Path:
    """A kubeconfig of one cluster and one user, beside the file of an authority."""
    (folder / "ca.pem").touch()
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "one",
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u"}},
                    {"name": "two", "context": {"cluster": "c"}},
                ],
                "clusters": [{"name": "c", "cluster": dict(CLUSTER if cluster is None else cluster)}],
                "users": [{"name": "u", "user": dict(user)}],
            }
        )
    )
    return path


def source_of(path: Path, context: str = "") -> AccessSource:
    return AccessSource(KubernetesAccess(kubeconfig=str(path), context=context), {})


def access(path: Path, context: str = "", deadline: Deadline | None = None) -> ApiAccess:
    return source_of(path, context).current(deadline=deadline or soon())


def error_of(path: Path, context: str = "", deadline: Deadline | None = None) -> NetplugError:
    """The error that a kubeconfig leads to; it does not contain the secret."""
    with pytest.raises(NetplugError) as refused:
        access(path, context, deadline)
    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"
    return refused.value


def refusal(path: Path, context: str = "") -> str:
    """What is said of a kubeconfig that makes no sense."""
    error = error_of(path, context)
    assert isinstance(error, ConfigurationError)
    assert error.code == 7
    return str(error)


def program(folder: Path, script: str, **more: object) -> dict[str, object]:
    """A user whose credentials are what a script says; ``%s`` in it is the head of a good answer."""
    path = folder / "login"
    head = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"})[:-1]
    path.write_text("#!/bin/sh\n" + script.replace("%s", head) + "\n")
    path.chmod(0o700)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"}
    return {"exec": {**command, **more}}
