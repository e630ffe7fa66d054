"""When certificates are copied again."""

from collections.abc import Hashable

from attrs import define, field

from netplug_cli.install.certificates import CertificateRefresh
from tests.harness.node_server import Lines


@define
class Mounted:
    """Certificates, and how often they were copied."""

    stamps: Hashable = 0
    copies: int = 0
    error: OSError | None = None
    log: Lines = field(factory=Lines)

    def copy(self) -> None:
        if self.error is not None:
            raise self.error
        self.copies += 1

    def refresh(self) -> CertificateRefresh:
        return CertificateRefresh(copy=self.copy, find_stamps=lambda: self.stamps, log=self.log, copied=self.stamps)


def test_a_change_is_copied_once_it_has_settled() -> None:
    mounted = Mounted()
    refresh = mounted.refresh()
    for stamps, copies in [(0, 0), (0, 0), (1, 0), (2, 0), (2, 1), (2, 1), (0, 1), (0, 2)]:
        mounted.stamps = stamps
        refresh.look()
        assert mounted.copies == copies


def test_a_failure_is_one_line_and_is_tried_again() -> None:
    mounted = Mounted()
    refresh = mounted.refresh()
    mounted.stamps, mounted.error = 1, OSError(28, "No space left on device")
    for _ in range(4):
        refresh.look()
    assert mounted.log.texts == [
        "ERROR the certificates of etcd are not copied cause=[Errno 28] No space left on device"
    ]
    mounted.error = None
    refresh.look()
    assert mounted.copies == 1
