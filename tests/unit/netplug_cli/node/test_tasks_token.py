"""When the plugin's token is renewed, and what the log says of it."""

from collections.abc import Hashable

from attrs import define, field

from netplug_cli.node.tasks import TokenRefresh
from netplug_core.clock import SECOND_NS
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.errors import Unavailable
from netplug_core.installation.installer import IssuedToken
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

DAY_S = 86_400.0
AWAY = Unavailable("API", "away")
FAILED = f"WARNING the plugin's token is not renewed cause={AWAY}"


@define
class Scene:
    """A process with credentials of its own, and an API server that may be away; chance is always a half."""

    stamps: Hashable = "one"
    away: Exception | None = None
    lifetime_s: float = DAY_S
    is_mounted: bool = False
    interval_s: float | None = None
    renewed: int = 0
    clock: ManualClock = field(factory=ManualClock)
    log: Lines = field(factory=Lines)
    refresh: TokenRefresh = field(init=False)
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.refresh = TokenRefresh(
            renew=self.renew,
            find_stamps=lambda: self.stamps,
            path="/k",
            clock=self.clock,
            chance=lambda: 0.5,
            log=self.log,
            interval_s=self.interval_s,
        )
        self.driven = DrivenControllers([self.refresh.controller()], clock=self.clock, log=self.log)

    def renew(self) -> IssuedToken:
        if self.away is not None:
            raise self.away
        self.renewed += 1
        expires_ns = self.clock.now_ns() + int(self.lifetime_s * SECOND_NS)
        return IssuedToken(text="t", expires_ns=expires_ns, is_mounted=self.is_mounted)

    def pass_time(self, seconds: float) -> int:
        """Look until that many seconds later; how often the token has been renewed so far."""
        self.driven.pass_time(seconds)
        return self.renewed


def test_the_token_is_renewed_at_once_and_then_by_time() -> None:
    scene = Scene()
    assert scene.refresh.credentials_in_use() is None
    assert scene.pass_time(0) == 1
    assert scene.pass_time(DAY_S / 4 * 1.5 - 1) == 1
    assert scene.pass_time(1) == 2
    expires_ns = scene.clock.now_ns() + int(DAY_S * SECOND_NS)
    assert scene.refresh.credentials_in_use() == CredentialsInUse(access="plugin", location="/k", expires_ns=expires_ns)


def test_a_configured_interval_is_used() -> None:
    scene = Scene(interval_s=60.0)
    assert [scene.pass_time(0), scene.pass_time(89), scene.pass_time(1)] == [1, 1, 2]


def test_a_burst_of_changes_is_one_renewal() -> None:
    scene = Scene()
    scene.pass_time(0)
    for number in range(5):
        scene.stamps = number
        assert scene.pass_time(1) == 1
    assert [scene.pass_time(1), scene.pass_time(1), scene.pass_time(1)] == [2, 2, 2]


def test_credentials_that_cannot_be_looked_at_leave_the_time() -> None:
    scene = Scene()
    scene.pass_time(0)
    scene.stamps = None
    assert [scene.pass_time(1), scene.pass_time(1), scene.pass_time(DAY_S / 2)] == [1, 1, 2]
    scene.stamps = "back"
    assert [scene.pass_time(1), scene.pass_time(1), scene.pass_time(1)] == [2, 3, 3]


def test_a_failure_is_tried_again_soon_and_is_one_line() -> None:
    scene = Scene(away=AWAY)
    for _ in range(3):
        scene.pass_time(7.5)
    scene.away = PermissionError(13, "Permission denied", "/k")
    scene.pass_time(7.5)
    scene.away = None
    assert scene.pass_time(4.9) == 0
    assert scene.pass_time(0.1) == 1
    assert scene.log.texts == [
        FAILED,
        "WARNING the plugin's token is not renewed cause=[Errno 13] Permission denied: '/k'",
        "INFO the plugin's token is renewed expires=2026-01-02T00:00:35Z path=/k token=issued",
    ]


def test_a_change_that_fails_is_tried_again_by_time() -> None:
    scene = Scene()
    scene.pass_time(0)
    scene.away, scene.stamps = AWAY, "two"
    assert [scene.pass_time(1), scene.pass_time(1), scene.pass_time(1)] == [1, 1, 1]
    assert scene.log.texts.count(FAILED) == 1
    scene.away = None
    assert scene.pass_time(10) == 2


def test_the_pods_own_token_is_named_so() -> None:
    scene = Scene(is_mounted=True)
    scene.pass_time(0)
    assert scene.log.texts[0].endswith("token=the pod's own, as the server issues none")
