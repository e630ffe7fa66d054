"""Settings are files; nothing is written here, because whose machine it is a test cannot know."""

import pytest

from netplug_backends.linux import sysctls


def test_a_setting_is_read() -> None:
    found = sysctls.find_sysctl("kernel/ostype")
    assert found == "Linux"


def test_a_setting_that_this_kernel_lacks_is_none() -> None:
    assert sysctls.find_sysctl("net/ipv4/no_such") is None


def test_a_setting_that_this_kernel_lacks_cannot_be_written() -> None:
    with pytest.raises(FileNotFoundError):
        sysctls.write_sysctl("net/ipv4/no_such", "1")


def test_ipv6_is_there_exactly_if_its_settings_are() -> None:
    assert sysctls.has_ipv6() == (sysctls.find_sysctl("net/ipv6/conf/all/forwarding") is not None)
