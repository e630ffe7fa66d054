"""The environment of the installer: defaults, and variables that are not accepted."""

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.installation.installer import read_installer_settings


def test_defaults() -> None:
    settings = read_installer_settings({})
    assert settings.net_dir == "/etc/cni/net.d"
    assert settings.tls_dir == "/etc/cni/net.d/netplug-tls"
    assert settings.conf_name == settings.old_conf_name == "10-netplug.conflist"
    assert (settings.template, settings.template_file, settings.node_name) == ("", "", "")
    assert settings.tls_assets_dir == "/netplug-secrets"
    assert (settings.updates_programs, settings.stays, settings.conf_mode) == (True, True, 0o600)
    assert settings.skipped_programs == frozenset()
    assert settings.variables == {
        "LOG_LEVEL": "info",
        "LOG_FILE_PATH": "/var/log/netplug/cni/cni.log",
        "LOG_FILE_MAX_SIZE": "100",
        "LOG_FILE_MAX_AGE": "30",
        "LOG_FILE_MAX_COUNT": "10",
        "DATASTORE_TYPE": "kubernetes",
        "CNI_MTU": "1500",
        "KUBERNETES_SERVICE_HOST": "",
        "KUBERNETES_SERVICE_PORT": "",
        "NETPLUG_API_GROUP": "crd.projectnetplug.org/v1",
        "ETCD_ENDPOINTS": "",
        "ETCD_DISCOVERY_SRV": "",
        "REQUIRE_MTU_FILE": "false",
    }


def test_variables_replace_defaults_and_empty_ones_do_not() -> None:
    settings = read_installer_settings(
        {
            "CNI_NET_DIR": "/run/net.d/",
            "CNI_CONF_NAME": "20-netplug.conflist",
            "SKIP_CNI_BINARIES": "portmap, tuning,,",
            "UPDATE_CNI_BINARIES": "False",
            "SLEEP": "false",
            "TEST_FILE_PERMISSION": "0o644",
            "CNI_MTU": "9000",
            "LOG_LEVEL": "",
        }
    )
    assert settings.net_dir == "/run/net.d"
    assert settings.conf_name == "20-netplug.conflist"
    assert settings.skipped_programs == {"portmap", "tuning"}
    assert (settings.updates_programs, settings.stays, settings.conf_mode) == (False, False, 0o644)
    assert settings.variables["CNI_MTU"] == "9000"
    assert settings.variables["LOG_LEVEL"] == "info"


@pytest.mark.parametrize(
    "name, value, accepted",
    [
        ("CNI_NET_DIR", "net.d", "an absolute path is expected"),
        ("TLS_ASSETS_DIR", "./secrets", "an absolute path is expected"),
        (
            "CNI_CONF_NAME",
            "../10-netplug.conflist",
            "the name of a file without a folder, ending in .conflist, .conf or .json, is expected",
        ),
        (
            "CNI_OLD_CONF_NAME",
            "10-netplug.txt",
            "the name of a file without a folder, ending in .conflist, .conf or .json, is expected",
        ),
        ("SLEEP", "yes", "true or false is expected"),
        ("UPDATE_CNI_BINARIES", "1", "true or false is expected"),
        ("TEST_FILE_PERMISSION", "rw", "the mode of a file in octal, such as 0600, is expected"),
        ("TEST_FILE_PERMISSION", "0999", "the mode of a file in octal, such as 0600, is expected"),
    ],
)
def test_a_variable_that_is_not_accepted_is_named(name: str, value: str, accepted: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read_installer_settings({name: value})
    assert str(refusal.value) == f"{name}: '{value}' is not accepted; {accepted}"
