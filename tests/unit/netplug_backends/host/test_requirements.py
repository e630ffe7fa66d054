"""What ``install host`` finds missing on a host: exact texts, and silence where nothing is."""

import json
from pathlib import Path

import pytest

from netplug_backends.host.requirements import find_host_problems, find_missing_plugins, look_for_plugins

FORWARDING = ("proc/sys/net/ipv4/ip_forward", "proc/sys/net/ipv6/conf/all/forwarding")
BIN_DIR = "/opt/cni/bin"
GET_PORTMAP = "run: apt-get install containernetworking-plugins && ln -s /usr/lib/cni/portmap /opt/cni/bin/"
NETAVARK = (
    "podman makes networks with netavark and calls no CNI plugin: set network_backend to cni; "
    "run: mkdir -p /etc/containers/containers.conf.d && "
    """printf '[network]\\nnetwork_backend = "cni"\\n' >/etc/containers/containers.conf.d/netplug.conf"""
)


class Host:
    """A host in a folder, on which nothing is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path in FORWARDING:
            self.write(path, "1\n")
        for plugin in ("portmap", "loopback"):
            self.write(f"opt/cni/bin/{plugin}", "", 0o755)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def problems(self, bin_dir: str = BIN_DIR) -> list[str]:
        return list(find_host_problems(bin_dir, str(self.root)))

    def missing(self, bin_dir: str = BIN_DIR) -> list[str]:
        return list(find_missing_plugins(bin_dir, str(self.root)))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_nothing_is_said_of_a_host_that_has_everything(host: Host) -> None:
    assert host.problems() == []
    assert host.missing() == []


def test_a_host_that_does_not_forward(host: Host) -> None:
    for path in FORWARDING:
        host.write(path, "0\n")
    ipv4, ipv6 = host.problems()
    assert ipv4 == (
        "net.ipv4.ip_forward is 0 on this node: over IPv4, pods reach this node and its other pods, and nothing else; "
        "run: sysctl -w net.ipv4.ip_forward=1"
    )
    assert ipv6 == (
        "net.ipv6.conf.all.forwarding is 0 on this node: over IPv6, pods reach this node, and nothing else; "
        "run: sysctl -w net.ipv6.conf.all.forwarding=1"
    )


def test_a_host_without_ipv6_has_no_setting_to_change(host: Host) -> None:
    (host.root / FORWARDING[1]).unlink()
    assert host.problems() == []


def test_a_missing_plugin_is_linked_from_debian_s_folder_or_installed(host: Host) -> None:
    (host.root / "opt/cni/bin/portmap").unlink()
    missing = (
        "portmap is not in /opt/cni/bin: host ports do not work without it, and no pod starts if the configuration list"
    )
    assert host.problems() == [f"{missing} names it; {GET_PORTMAP}"]
    host.write("usr/lib/cni/portmap", "", 0o755)
    assert host.problems() == [f"{missing} names it; run: ln -s /usr/lib/cni/portmap /opt/cni/bin/"]


def test_in_debian_s_folder_the_package_alone_is_named(host: Host) -> None:
    package = "run: apt-get install containernetworking-plugins"
    assert [text.partition("; ")[2] for text in host.problems("/usr/lib/cni")] == [package]
    assert host.missing("/usr/lib/cni") == [
        f"loopback is not in /usr/lib/cni: containerd starts no pod without it; {package}"
    ]


def test_a_plugin_in_another_folder_of_containerd_is_not_missing(host: Host) -> None:
    (host.root / "opt/cni/bin/loopback").unlink()
    host.write("usr/lib/cni/loopback", "", 0o755)
    assert len(host.missing()) == 1
    section = '[plugins."io.containerd.cri.v1.runtime".cni]\n'
    host.write("etc/containerd/config.toml", f'{section}bin_dirs = ["/opt/cni/bin", "/usr/lib/cni"]')
    assert host.missing() == []


def test_a_plugin_that_the_configuration_list_names(host: Host) -> None:
    chain = [{"type": "netplug"}, {"type": "bandwidth"}, {"type": "portmap"}]
    host.write("etc/cni/net.d/10-netplug.conflist", json.dumps({"plugins": chain}))
    host.write("etc/cni/net.d/20-other.conflist", json.dumps({"plugins": [{"type": "bridge"}]}))
    (host.root / "opt/cni/bin/portmap").unlink()
    assert host.problems() == [], "each is said once"
    assert [text.partition(";")[0] for text in host.missing()] == [
        "bandwidth is not in /opt/cni/bin: /etc/cni/net.d/10-netplug.conflist names it, so no pod starts without it",
        "portmap is not in /opt/cni/bin: /etc/cni/net.d/10-netplug.conflist names it, so no pod starts without it",
    ]


@pytest.mark.parametrize(
    "text, folder",
    [
        ('[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/usr/lib/cni"', "/usr/lib/cni"),
        ('[plugins."io.containerd.cri.v1.runtime".cni]\nbin_dirs = ["/usr/lib/cni", "/a"]', "/usr/lib/cni"),
        ('[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/opt/cni/bin/"', ""),
        ('[plugins."io.containerd.cri.v1.runtime".cni]\nbin_dirs = ["/a", "/opt/cni/bin"]', ""),
        ("version = 2", ""),
    ],
)
def test_the_folder_in_which_containerd_looks(host: Host, text: str, folder: str) -> None:
    host.write("etc/containerd/config.toml", text)
    expected = (
        "containerd does not look for plugins in /opt/cni/bin, if /etc/containerd/config.toml is its configuration "
        "(with containerd -c FILE, look there); "
        f"run: netplugctl install host --bin-dir {folder}"
    )
    assert host.problems() == ([expected] if folder else [])


@pytest.mark.parametrize(
    "files, problems",
    [
        ({}, []),
        ({"usr/lib/podman/netavark": ""}, [NETAVARK]),
        ({"etc/containers/containers.conf": '[network]\nnetwork_backend = "netavark"'}, [NETAVARK]),
        (
            {
                "usr/lib/podman/netavark": "",
                "etc/containers/containers.conf.d/9.conf": '[network]\nnetwork_backend="cni"',
            },
            [],
        ),
        (
            {
                "usr/share/containers/containers.conf": '[network]\nnetwork_backend = "cni"',
                "etc/containers/containers.conf": '[network]\nnetwork_backend = "netavark"',
            },
            [NETAVARK],
        ),
    ],
)  # fmt: skip
def test_the_network_backend_of_podman(host: Host, files: dict[str, str], problems: list[str]) -> None:
    for path, text in files.items():
        host.write(path, text, 0o755)
    assert host.problems() == [], "podman is not installed"
    host.write("usr/bin/podman", "", 0o755)
    assert host.problems() == problems


@pytest.mark.parametrize("text", ["", "{", "[]", "plugins", "[plugins]\na = 1", '{"plugins": [1, {"type": 2}]}', "\0"])
def test_a_file_that_is_not_understood_says_nothing(host: Host, text: str) -> None:
    host.write("usr/bin/podman", "", 0o755)
    for path in (
        "etc/containerd/config.toml", "etc/containers/containers.conf", "etc/cni/net.d/10-netplug.conflist",
        "etc/cni/net.d/20.conflist",
    ):  # fmt: skip
        host.write(path, text)
    assert host.problems() == []


def test_a_node_that_serves_looks_in_its_own_folders(host: Host) -> None:
    chain = {"name": "net", "plugins": [{"type": "netplug"}, {"type": "portmap"}]}
    host.write("etc/other/10-netplug.conflist", json.dumps(chain))

    def look(*, has_orchestrator: bool = True, bin_dir: str = "/srv/cni") -> list[str]:
        found = look_for_plugins(bin_dir, "/etc/other/", has_orchestrator=has_orchestrator, root=str(host.root))
        return [missing.plugin.name for missing in found]

    assert look() == ["loopback", "portmap"]
    assert look(has_orchestrator=False) == ["portmap"]
    host.write("usr/bin/containerd", "", 0o755)
    assert look(has_orchestrator=False) == ["loopback", "portmap"]
    assert look(bin_dir=BIN_DIR) == []
    host.write("srv/cni/portmap", "", 0o644)
    assert look() == ["loopback", "portmap"]
    (host.root / "srv/cni/portmap").chmod(0o755)
    assert look() == ["loopback"]
    (host.root / "etc/other/10-netplug.conflist").unlink()
    assert look() == []
