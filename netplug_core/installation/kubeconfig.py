"""The kubeconfig with which the plugin reaches the API server.

Whatever writes that file renders it here: the installer at first, and the node process when it renews the token.
"""

from __future__ import annotations

import base64
import json

from attrs import field, frozen

__all__ = ["FILE_NAME", "PluginAccess", "render_kubeconfig"]

FILE_NAME = "netplug-kubeconfig"
"""The name of the file, in the folder of the network configurations."""

_CLUSTER, _USER, _CONTEXT = "local", "netplug", "netplug-context"


@frozen(kw_only=True)
class PluginAccess:
    """How the plugin reaches the API server at the URL ``server``.

    ``certificate_authority`` has the certificates (PEM) that the server's is verified with; None: it is not verified.
    """

    server: str
    certificate_authority: bytes | None
    token: str = field(repr=False)


def render_kubeconfig(access: PluginAccess) -> str:
    """The text of the file. It is JSON, which is YAML too, so that the plugin reads it without the YAML library."""
    authority = access.certificate_authority
    trust: dict[str, object] = (
        {"insecure-skip-tls-verify": True}
        if authority is None
        else {"certificate-authority-data": base64.b64encode(authority).decode()}
    )
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": {"server": access.server, **trust}}],
        "users": [{"name": _USER, "user": {"token": access.token}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CLUSTER, "user": _USER}}],
        "current-context": _CONTEXT,
    }
    return f"{json.dumps(document, indent=2)}\n"
