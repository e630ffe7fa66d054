"""Where the lab finds the servers of settings."""

import pytest

from netplug_cli.wiring.lab import server_addresses
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess


@pytest.mark.parametrize(
    "settings,places",
    [
        (
            DatastoreSettings(etcd_endpoints=("http://10.0.0.1:1", "https://[fd00::1]")),
            (("10.0.0.1", 1), ("fd00::1", 2379)),
        ),
        (
            DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(api_root="https://10.0.0.1")),
            (("10.0.0.1", 443),),
        ),
    ],
)
def test_the_lab_learns_where_servers_are(settings: DatastoreSettings, places: tuple[tuple[str, int], ...]) -> None:
    assert server_addresses(settings) == places
