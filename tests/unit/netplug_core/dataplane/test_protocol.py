"""The texts that people read: values, differences and errors, and the code of each error."""

import pytest

from netplug_core.addressing import Address, InterfaceAddress, Prefix
from netplug_core.dataplane.protocol import (
    DataplaneTimeout,
    Difference,
    KernelError,
    LinkExists,
    Neighbour,
    PlannedRoute,
    RouteConflict,
    RouteProtocol,
    RouteScope,
    Sysctl,
)
from netplug_core.errors import DataplaneError

ADDRESS = Address.parse("10.65.0.5")
PREFIX = Prefix.parse("10.65.0.5/32")


@pytest.mark.parametrize(
    "value,text",
    [
        (Sysctl(path="net/ipv4/ip_forward", value="0"), "net/ipv4/ip_forward = 0"),
        (InterfaceAddress(ADDRESS, 32), "10.65.0.5/32"),
        (Neighbour(ADDRESS, "ee:ee:ee:ee:ee:ee"), "10.65.0.5 at ee:ee:ee:ee:ee:ee"),
        (
            PlannedRoute(destination=PREFIX, scope=RouteScope.LINK, protocol=RouteProtocol.NETPLUG),
            "10.65.0.5/32 (protocol 78)",
        ),
        (
            PlannedRoute(destination=PREFIX, gateway=ADDRESS, scope=RouteScope.GLOBAL, protocol=RouteProtocol.BOOT),
            "10.65.0.5/32 via 10.65.0.5 (protocol 3)",
        ),
        (Difference("MTU of 'eth0'", "1450", "1500"), "MTU of 'eth0': expected 1450, found 1500"),
    ],
)
def test_values_read_as_people_write_them(value: object, text: str) -> None:
    assert str(value) == text


@pytest.mark.parametrize(
    "error,code,text",
    [
        (
            LinkExists("eth0", "/run/netns/one"),
            121,
            "the namespace /run/netns/one already has an interface 'eth0'; CNI_IFNAME must be a free name",
        ),
        (
            RouteConflict(PREFIX, "netp1", "eth7"),
            122,
            (
                "the host route to 10.65.0.5/32 cannot be given to the interface 'netp1': "
                "it belongs to the interface 'eth7'; remove that route or use another address"
            ),
        ),
        (KernelError("bringing up 'eth0'", "No such device"), 123, "bringing up 'eth0': No such device"),
        (DataplaneTimeout("removing 'eth0'"), 124, "timed out removing 'eth0'"),
    ],
)
def test_errors_name_what_is_wrong(error: DataplaneError, code: int, text: str) -> None:
    assert (error.code, str(error)) == (code, text)
