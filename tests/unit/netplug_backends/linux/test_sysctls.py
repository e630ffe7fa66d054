"""Reading settings. Nothing is written, because a unit test must not change the machine."""

import pytest

from netplug_backends.linux import sysctls


def test_a_setting_is_read() -> None:
    found = sysctls.find_sysctl("kernel/ostype")
    assert found == "Linux"


def test_a_missing_setting_is_none() -> None:
    assert sysctls.find_sysctl("net/ipv4/no_such") is None


def test_a_missing_setting_cannot_be_written() -> None:
    with pytest.raises(FileNotFoundError):
        sysctls.write_sysctl("net/ipv4/no_such", "1")


def test_has_ipv6_depends_on_its_settings() -> None:
    assert sysctls.has_ipv6() == (sysctls.find_sysctl("net/ipv6/conf/all/forwarding") is not None)
