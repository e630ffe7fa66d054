"""Reading settings. Nothing is written, because a unit test must not change the machine."""

import pytest

from netplug_backends.linux import attachment


def test_a_setting_is_read() -> None:
    found = attachment.find_sysctl("kernel/ostype")
    assert found == "Linux"


def test_a_missing_setting_is_none() -> None:
    assert attachment.find_sysctl("net/ipv4/no_such") is None


def test_a_missing_setting_cannot_be_written() -> None:
    with pytest.raises(FileNotFoundError):
        attachment.write_sysctl("net/ipv4/no_such", "1")


def test_has_ipv6_depends_on_its_settings() -> None:
    assert attachment.has_ipv6() == (attachment.find_sysctl("net/ipv6/conf/all/forwarding") is not None)
