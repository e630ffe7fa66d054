"""The systemd units: the program's path is in one line, and what is generated is what is installed."""

import pytest

from netplug_backends.host.services import (
    BIRD_SERVICE,
    DEFAULT_PROGRAM,
    OPTIONS_FILE,
    SERVICE,
    SOCKET,
    UNITS,
    render_controllers_unit,
    render_units,
)
from netplug_core.errors import ConfigurationError

# Each gives a service namespaces of its own, in which it would not see those of pods or a configured file.
SEPARATING = (
    "PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateUsers", "ProtectSystem", "ProtectHome", "ProtectHostname",
    "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc",
    "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "RestrictNamespaces", "RootDirectory",
    "TemporaryFileSystem",
)  # fmt: skip


def lines_of(name: str, program: str = DEFAULT_PROGRAM) -> list[str]:
    return render_units(program)[name].splitlines()


def test_the_service_runs_the_program_with_the_options_of_its_file() -> None:
    assert tuple(render_units("/bin/netplug-node")) == UNITS
    lines = lines_of(SERVICE, "/usr/lib/cni/netplug-node")
    assert "ExecStart=/usr/lib/cni/netplug-node $NETPLUG_NODE_OPTIONS" in lines
    assert f"EnvironmentFile=-{OPTIONS_FILE}" in lines
    assert {"Type=notify", "Restart=always", "WatchdogSec=60", "OOMScoreAdjust=-900"} <= set(lines)
    assert {f"Requires={SOCKET}", f"After={SOCKET}"} <= set(lines)


def test_the_socket_is_the_one_that_clients_ask_and_roots_alone() -> None:
    lines = lines_of(SOCKET)
    assert {"ListenStream=/run/netplug/node.sock", "SocketMode=0600"} <= set(lines)


@pytest.mark.parametrize("name", [SERVICE, BIRD_SERVICE])
def test_the_services_share_the_namespaces_of_the_host(name: str) -> None:
    assert [line for line in lines_of(name) if line.partition("=")[0] in SEPARATING] == []


def test_bird_outlives_the_node_process_and_no_end_of_its_unit_withdraws_routes() -> None:
    lines = lines_of(BIRD_SERVICE)
    # Not SIGTERM; and after "down", by which the node process ends it, it is not started again.
    assert {"KillMode=process", "KillSignal=SIGKILL", "Restart=on-failure"} <= set(lines)
    assert "ExecStop=-/usr/sbin/birdc -s /run/netplug/bird/bird.ctl graceful restart" in lines
    assert not [line for line in lines if line.startswith(("PartOf=", "BindsTo=", "WantedBy="))]
    assert f"Environment=NETPLUG_BGP_UNIT={BIRD_SERVICE}" in lines_of(SERVICE)


@pytest.mark.parametrize("program", ["relative/netplug-node", "/with a/space", "/with%/specifier", "/with$/value", ""])
def test_a_path_with_a_meaning_of_its_own_is_refused(program: str) -> None:
    with pytest.raises(ConfigurationError, match="a path of letters, digits and"):
        render_units(program)


def test_the_controllers_without_an_orchestrator_copy_nothing_and_own_nothing() -> None:
    lines = render_controllers_unit("/opt/netplug/bin/netplug-controllers").splitlines()
    assert "ExecStart=/opt/netplug/bin/netplug-controllers $NETPLUG_CONTROLLERS_OPTIONS" in lines
    assert {"Environment=DATASTORE_TYPE=etcdv3 ENABLED_CONTROLLERS=node", "DynamicUser=yes", "Restart=always"} <= set(
        lines
    )
    with pytest.raises(ConfigurationError, match="a path of letters, digits and"):
        render_controllers_unit("relative")
