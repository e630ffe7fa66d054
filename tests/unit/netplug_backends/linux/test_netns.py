"""Paths of no namespace and of our own. Entering one needs rights, so integration tests do that."""

import os
from pathlib import Path

import pytest

from netplug_backends.linux.netns import NamespaceGone, entered_namespace, is_own_namespace
from netplug_core.dataplane.protocol import OWN_NAMESPACE


@pytest.mark.parametrize("path", ["", "/nowhere/at/all", "/etc/hostname/x", "/", "/dev/null", "/proc/self/ns/uts"])
def test_a_path_that_is_no_network_namespace_is_gone(path: str) -> None:
    before = os.stat(OWN_NAMESPACE).st_ino
    with pytest.raises(NamespaceGone, match=f"'{path}' is not a network namespace: "), entered_namespace(path):
        pytest.fail("the block ran")
    assert os.stat(OWN_NAMESPACE).st_ino == before


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NamespaceGone, match="it is something else"), entered_namespace(str(pipe)):
        pytest.fail("the block ran")


def test_a_descriptor_that_is_no_network_namespace_is_gone_and_stays_open(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with (
            pytest.raises(NamespaceGone, match="'/run/netns/c1' is not a network namespace: it is something else"),
            entered_namespace("/run/netns/c1", {"/run/netns/c1": descriptor}),
        ):
            pytest.fail("the block ran")
        assert os.fstat(descriptor).st_ino == tmp_path.stat().st_ino
    finally:
        os.close(descriptor)


def test_a_descriptor_is_looked_at_in_place_of_its_path() -> None:
    descriptor = os.open(OWN_NAMESPACE, os.O_RDONLY)
    try:
        assert is_own_namespace("/nowhere", {"/nowhere": descriptor})
        assert not is_own_namespace("/elsewhere", {"/nowhere": descriptor})
    finally:
        os.close(descriptor)


def test_a_path_that_cannot_be_followed_is_an_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="Too many levels"), entered_namespace(str(loop)):
        pytest.fail("the block ran")


@pytest.mark.parametrize("path", ["/proc/self/ns/net", "/proc/thread-self/ns/net"])
def test_our_own_namespace_is_recognised_under_any_path(path: str) -> None:
    assert is_own_namespace(path)


@pytest.mark.parametrize("path", ["", "/nowhere", "/etc/hostname", "/proc/self/ns/uts", "a\0b"])
def test_any_other_path_is_not_our_own_namespace(path: str) -> None:
    assert not is_own_namespace(path)
