"""Support bundles as their reader opens them, and a machine with a secret in every place that a bundle is made of."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

from attrs import field, frozen

from netplug_core.settings.model import DatastoreSettings
from tests.harness.planted_secrets import FailingSettings

__all__ = ["PlantedMachine", "plant_secrets", "read_bundle"]

PEM_LINES = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj")
PEM = "\n".join(("-----BEGIN PRIVATE KEY-----", *PEM_LINES, "-----END PRIVATE KEY-----", ""))


def read_bundle(path: str | Path) -> dict[str, str]:
    """The files of a bundle by their paths below its one folder."""
    files: dict[str, str] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            assert (member.mode, member.uid, member.uname) == (0o600, 0, "")
            files[member.name.partition("/")[2]] = content.read().decode()
    return files


@frozen(kw_only=True)
class PlantedMachine:
    """A machine whose files have secrets. ``spec`` is for the tool's configuration, ``pools`` are pools as YAML."""

    configurations: str
    spec: dict[str, object] = field(repr=False)
    pools: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def find_leaked_secrets(self, text: str) -> tuple[str, ...]:
        """The secrets that can be read in a text."""
        case = FailingSettings(name="bundle", settings=DatastoreSettings(), secrets=self.secrets)
        return case.find_leaked_secrets(text)


def plant_secrets(folder: Path) -> PlantedMachine:
    """Plant a secret of its own in each place."""
    numbers = {
        place: f"pl4nted-{number:02}-{place}"
        for number, place in enumerate(
            ("option", "annotation", "url", "applied", "label", "netconf", "kubeconfig", "inline", "logged", "header",
             "nested", "unknown")
        )
    }  # fmt: skip
    configurations = folder / "net.d"
    configurations.mkdir()
    kubeconfig = {
        "users": [{"name": "u", "user": {"token": numbers["kubeconfig"], "client-key-data": _base64(PEM)}}],
    }
    (configurations / "netplug-kubeconfig").write_text(json.dumps(kubeconfig))
    log = folder / "cni.log"
    plugin: dict[str, object] = {"type": "netplug", "log_file_path": str(log), "ipam": {"type": "netplug-ipam"}}
    plugin |= {"kubernetes": {"kubeconfig": str(configurations / "netplug-kubeconfig")}}
    plugin |= {"policy": {"k8s_auth_token": numbers["netconf"], "k8s_client_key": PEM}}
    plugin |= {"datastore_options": {"dsn": numbers["nested"]}, "etcd_endpoints": f"http://u:{numbers['url']}@h:1"}
    conflist = {"name": "net", "cniVersion": "1.1.0", "plugins": [plugin, {"type": "portmap"}]}
    (configurations / "10-netplug.conflist").write_text(json.dumps(conflist))
    lines = [f"2026 [INFO] plain: {secret}" for secret in numbers.values() if secret != numbers["logged"]]
    lines += [f'2026 [ERROR] k8s_api_token="{numbers["logged"]}"', f"Authorization: Bearer {numbers['header']}"]
    log.write_text("\n".join([*lines, PEM.replace("\n", "\\n"), PEM, *PEM_LINES]) + "\n")
    annotations = {
        "x.io/api-token": numbers["annotation"],
        "x.io/mirror": f"https://root:{numbers['url']}@mirror/",
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"data": {"token": numbers["applied"]}}),
        "x.io/json": json.dumps({"deep": [{"password": numbers["nested"]}]}),
        "x.io/pem": PEM,
        "x.io/header": f"Bearer {numbers['header']}",
    }
    metadata = {"name": "main", "annotations": annotations, "labels": {"x.io/password": numbers["label"]}}
    pool = {"apiVersion": "projectnetplug.org/v3", "kind": "IPPool", "metadata": metadata}
    inline = json.dumps({"users": [{"user": {"password": numbers["inline"]}}]})
    return PlantedMachine(
        configurations=str(configurations),
        spec={
            "datastoreOptions": {"secret-of": numbers["option"], "other": numbers["unknown"]},
            "kubeconfigInline": inline,
        },
        pools=json.dumps({**pool, "spec": {"cidr": "10.68.0.0/16"}}),
        secrets=(*numbers.values(), *PEM_LINES),
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
