"""The second object replaces what it sets, and clears nothing."""

from netplug_core.installation.document import IPAMType, overlaid, select
from netplug_core.installation.rules import check
from tests.harness.installations import network, read


def test_settings_of_the_overlay_win_and_the_others_stay() -> None:
    default = read({
        **network(mtu=1450, hostPorts="Disabled", ipPools=[{"cidr": "10.0.0.0/16"}]),
        "logging": {"cni": {"logSeverity": "Debug", "logFileMaxCount": 3}},
        "registry": "a.example/",
    })  # fmt: skip
    overlay = read({**network(mtu=9000), "logging": {"cni": {"logFileMaxCount": 4}}, "registry": ""}, name="overlay")
    spec = overlaid(default, overlay).installation.spec
    assert spec.network.mtu == 9000  # check 31
    assert default.installation.spec.network.mtu == 1450
    assert (spec.network.host_ports, spec.network.pools, spec.registry) == (
        default.installation.spec.network.host_ports,
        default.installation.spec.network.pools,
        "a.example/",
    )
    log = spec.logging.cni
    assert (log.severity, log.max_count) == (default.installation.spec.logging.cni.severity, 4)


def test_an_empty_setting_clears_nothing() -> None:
    default = read(network(mtu=1450, ipPools=[{"cidr": "10.0.0.0/16"}]))
    overlay = read(network(mtu=0, ipPools=[]), name="overlay")
    assert overlaid(default, overlay).installation == default.installation


def test_the_two_may_spell_the_ipam_differently() -> None:
    default = read({"cni": {"type": "Netplug", "ipam": {"plugin": "Netplug"}, "binDir": "/b"}})
    overlay = read(network(cni={"ipam": {"type": "HostLocal"}}), name="overlay")
    merged = overlaid(default, overlay)
    assert select(merged).ipam.value is IPAMType.HOST_LOCAL
    assert select(merged).bin_dir.value == "/b"
    assert check(merged).problems == ()


def test_a_problem_names_both() -> None:
    overlay = read(network(mtu=-1), name="overlay")
    (problem,) = check(overlaid(read(), overlay)).problems
    assert problem.where == "Installation(overlay) over Installation(default)"
