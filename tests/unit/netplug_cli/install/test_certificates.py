"""When certificates are copied again."""

from collections.abc import Hashable

from attrs import define, field

from netplug_cli.install import LOOK_EVERY_S, CertificateRefresh
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
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

    def driven(self) -> DrivenControllers:
        refresh = CertificateRefresh(copy=self.copy, find_stamps=lambda: self.stamps, copied=self.stamps)
        return DrivenControllers([refresh.controller()], clock=ManualClock(), log=self.log)


def test_a_change_is_copied_once_it_has_settled() -> None:
    mounted = Mounted()
    driven = mounted.driven()
    driven.pass_time(LOOK_EVERY_S)
    for stamps, copies in [(0, 0), (0, 0), (1, 0), (2, 0), (2, 1), (2, 1), (0, 1), (0, 2)]:
        mounted.stamps = stamps
        driven.pass_time(LOOK_EVERY_S)
        assert mounted.copies == copies


def test_a_failure_is_one_line_and_is_tried_again() -> None:
    mounted = Mounted()
    driven = mounted.driven()
    driven.pass_time()
    mounted.stamps, mounted.error = 1, OSError(28, "No space left on device")
    driven.pass_time(60)
    assert mounted.log.texts == [
        "ERROR the certificates of etcd are not copied cause=[Errno 28] No space left on device"
    ]
    mounted.error = None
    driven.pass_time(60)
    assert mounted.copies == 1
