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
