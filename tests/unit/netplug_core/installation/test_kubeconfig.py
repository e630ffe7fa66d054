"""The text of the plugin's kubeconfig, and that our own client reads it."""

import json

from netplug_backends.kubernetes.client.access import from_text
from netplug_backends.kubernetes.client.credentials import FileReader, TlsVerification
from netplug_core.installation.installer import PluginAccess, render_kubeconfig

SERVER = "https://[2001:db8::1]:6443"
TOKEN = "t.o.k"  # noqa: S105  # of no server


def test_it_has_one_cluster_one_user_and_one_context() -> None:
    access = PluginAccess(server=SERVER, certificate_authority=b"PEM", token=TOKEN)
    assert json.loads(render_kubeconfig(access)) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": SERVER, "certificate-authority-data": "UEVN"}}],
        "users": [{"name": "netplug", "user": {"token": TOKEN}}],
        "contexts": [{"name": "netplug-context", "context": {"cluster": "local", "user": "netplug"}}],
        "current-context": "netplug-context",
    }


def test_the_client_reads_what_was_rendered() -> None:
    text = render_kubeconfig(PluginAccess(server=SERVER, certificate_authority=b"PEM", token=TOKEN))
    found = from_text(text, "rendered", "", FileReader())
    assert (found.server, found.token, found.certificate_authority.data) == (SERVER, TOKEN, b"PEM")
    assert found.verification is TlsVerification.REQUIRED


def test_without_an_authority_the_server_is_not_verified() -> None:
    text = render_kubeconfig(PluginAccess(server=SERVER, certificate_authority=None, token=TOKEN))
    found = from_text(text, "rendered", "", FileReader())
    assert found.verification is TlsVerification.SKIPPED
    assert "certificate-authority" not in text


def test_its_repr_has_no_token() -> None:
    assert TOKEN not in repr(PluginAccess(server=SERVER, certificate_authority=None, token=TOKEN))
