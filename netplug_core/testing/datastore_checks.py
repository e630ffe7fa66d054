"""The text of ``Datastore`` as plain checks, each a function that takes a way to make an empty medium.

    @pytest.mark.parametrize("check", DATASTORE_CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check):
        check(empty_medium)

``datastore_conformance`` runs them all before its state machine. They store ``FRUIT_AND_TOOLS`` on a clock that is
moved by hand; a store that needs others is checked with ``check(empty_medium, samples=…, make_clock=…)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, Protocol

from netplug_core.clock import Clock
from netplug_core.datastore.protocol import HasIdentity
from netplug_core.errors import NetplugError
from netplug_core.testing.assertions import expect
from netplug_core.testing.clock import ManualClock, RealClock
from netplug_core.testing.datastore_commit_checks import COMMIT_CHECKS
from netplug_core.testing.datastore_harness import DatastoreHarness, open_harness
from netplug_core.testing.datastore_read_checks import READ_CHECKS
from netplug_core.testing.datastore_sharing_checks import SHARING_CHECKS
from netplug_core.testing.medium import OpenMedium
from netplug_core.testing.samples import FRUIT_AND_TOOLS, Samples
from netplug_core.testing.view_checks import VIEW_CHECKS

__all__ = ["DATASTORE_CHECKS", "DatastoreCheck", "identities_differ"]


class DatastoreCheck(Protocol):
    """One rule of the text; raises ``AssertionError`` where the store breaks it."""

    __name__: str

    def __call__(
        self,
        open_medium: OpenMedium,
        *,
        samples: Samples = FRUIT_AND_TOOLS,
        make_clock: Callable[[], Clock] = ManualClock,
    ) -> None:
        """Open two handles on an empty medium, check, close them."""
        ...


def _check(rule: Callable[[DatastoreHarness], None]) -> DatastoreCheck:
    needs_real_time = rule in SHARING_CHECKS  # threads that wait for one another cannot wait on a manual clock

    @wraps(rule)
    def check(
        open_medium: OpenMedium, *, samples: Samples = FRUIT_AND_TOOLS, make_clock: Callable[[], Clock] = ManualClock
    ) -> None:
        with open_harness(open_medium, samples, RealClock if needs_real_time else make_clock) as harness:
            try:
                rule(harness)
            except NetplugError as error:
                raise AssertionError(f"a call that the text allows was refused: {error!r}") from error

    return check


DATASTORE_CHECKS: Final[tuple[DatastoreCheck, ...]] = tuple(
    map(_check, (*COMMIT_CHECKS, *READ_CHECKS, *SHARING_CHECKS, *VIEW_CHECKS))
)
"""Every check, in the order in which an author makes them pass."""


def identities_differ(
    open_first: OpenMedium,
    open_second: OpenMedium,
    *,
    samples: Samples = FRUIT_AND_TOOLS,
    make_clock: Callable[[], Clock] = ManualClock,
) -> None:
    """Check that two media of a backend whose stores have identities (``HasIdentity``) have two of them.

    Raises:
        AssertionError: they have not.
    """
    with (
        open_harness(open_first, samples, make_clock) as first,
        open_harness(open_second, samples, make_clock) as second,
    ):
        found = []
        for harness in (first, second):
            store = harness.store
            if not isinstance(store, HasIdentity):
                raise AssertionError(f"the store {store.description.name} has no identity")
            found.append(store.find_identity(deadline=harness.deadline))
    expect(None not in found and found[0] != found[1], f"two stores have the identities {found}")
