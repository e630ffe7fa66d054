"""host-local: what is decoded from a network configuration, and what is refused."""

import pytest

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import ConfigurationError, DecodeError
from netplug_core.ipam.hostlocal.settings import (
    SUBNET_ACCEPTED,
    FolderSettings,
    PodCIDR,
    RangeSettings,
    load_folder_settings,
    load_settings,
)

WHERE = "network configuration"
HOST_BITS = (
    "ipam.ranges[0][0].subnet: '10.0.0.1/24' is not accepted; '10.0.0.1/24' has host bits set;"
    f" 10.0.0.0/24 is the prefix that holds it; {SUBNET_ACCEPTED}"
)


def test_a_configuration_without_anything() -> None:
    settings = load_settings({})
    assert settings.folder == FolderSettings(data_folder="/var/lib/cni/networks", network="")
    assert load_folder_settings({}) == settings.folder
    assert (settings.range_sets, settings.requested, settings.version) == ((), (), "")
    assert not settings.uses_pod_cidrs


def test_all_that_can_be_configured() -> None:
    settings = load_settings(
        {
            "cniVersion": "1.0.0",
            "name": "net1",
            "ipam": {
                "subnet": "10.1.0.0/24",
                "rangeStart": "10.1.0.5",
                "rangeEnd": "10.1.0.9",
                "gateway": "10.1.0.254",
                "ranges": [[{"subnet": "USEPODCIDRipv6"}], [{"subnet": "10.2.0.0/24"}, {"subnet": "usePodCidr"}]],
                "dataDir": "/run/networks",
            },
            "args": {"cni": {"ips": ["10.1.0.6"]}},
            "runtimeConfig": {"ipRanges": [[{"subnet": "10.3.0.0/24"}]], "ips": ["10.2.0.7/24", "10.1.0.6"]},
        }
    )
    assert settings.folder == FolderSettings(data_folder="/run/networks", network="net1")
    assert settings.requested == (Address.parse("10.1.0.6"), Address.parse("10.2.0.7"))
    assert settings.version == "1.0.0"
    assert settings.uses_pod_cidrs
    runtime, single, *listed = settings.range_sets
    assert runtime.where == f"{WHERE}.runtimeConfig.ipRanges[0]"
    assert single.ranges == (
        RangeSettings(
            subnet=Prefix.parse("10.1.0.0/24"),
            first=Address.parse("10.1.0.5"),
            last=Address.parse("10.1.0.9"),
            gateway=Address.parse("10.1.0.254"),
            where=f"{WHERE}.ipam",
        ),
    )
    assert [[one.subnet for one in each.ranges] for each in listed] == [
        [PodCIDR.IPV6],
        [Prefix.parse("10.2.0.0/24"), PodCIDR.IPV4],
    ]
    assert listed[1].ranges[1].where == f"{WHERE}.ipam.ranges[1][1]"
    assert [name.family for name in PodCIDR] == [Family.IPV4, Family.IPV6]


def test_empty_texts_count_as_not_set() -> None:
    settings = load_settings({"ipam": {"subnet": "", "rangeStart": "", "gateway": "", "dataDir": ""}})
    assert settings.range_sets == ()
    assert settings.folder.data_folder == "/var/lib/cni/networks"


@pytest.mark.parametrize(
    "ipam,text",
    [
        ({"ranges": [[{"subnet": "10.0.0.1/24"}]]}, HOST_BITS),
        (
            {"ranges": [[{"subnet": "10.0.0.0/24", "rangeEnd": "10"}]]},
            "ipam.ranges[0][0].rangeEnd: '10' is not accepted; an IP address such as 10.22.0.10 is expected",
        ),
        ({"dataDir": "networks"}, "ipam.dataDir: 'networks' is not accepted; an absolute path is expected"),
    ],
)
def test_values_that_are_not_accepted(ipam: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"ipam": ipam})
    assert str(caught.value) == f"{WHERE}.{text}"


def test_a_requested_address_has_to_be_one() -> None:
    with pytest.raises(ConfigurationError, match=r"runtimeConfig\.ips\[0\]: 'x/24' is not accepted; an IP address"):
        load_settings({"runtimeConfig": {"ips": ["x/24"]}})


@pytest.mark.parametrize(
    "netconf,where",
    [
        ({"ipam": {"ranges": {}}}, "ipam.ranges: must be an array"),
        ({"ipam": {"ranges": [{"subnet": "10.0.0.0/24"}]}}, "ipam.ranges[0]: must be an array"),
        ({"ipam": {"ranges": [["10.0.0.0/24"]]}}, "ipam.ranges[0][0]: must be an object"),
        ({"ipam": {"subnet": 10}}, "ipam.subnet: must be a string"),
        ({"runtimeConfig": []}, "runtimeConfig: must be an object"),
    ],
)
def test_wrong_types(netconf: dict[str, object], where: str) -> None:
    with pytest.raises(DecodeError) as caught:
        load_settings(netconf)
    assert str(caught.value) == f"{WHERE}.{where}"


def test_a_teardown_reads_where_the_files_are_and_nothing_else() -> None:
    ipam = {"dataDir": "/run/networks", "subnet": 10, "ranges": "none"}
    broken = {"name": "net1", "ipam": ipam, "runtimeConfig": [], "cniVersion": 1}
    assert load_folder_settings(broken) == FolderSettings(data_folder="/run/networks", network="net1")
    with pytest.raises(ConfigurationError, match="an absolute path is expected"):
        load_folder_settings({"ipam": {"dataDir": "networks"}})
