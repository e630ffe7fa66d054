"""Records a walk through the code: which modules of netplug a call enters, and how it moves between their rooms.

A room is a folder of modules. :meth:`Walk.record` is a profile function, by which a walk is told of each call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from sys import setprofile
from types import FrameType

from attrs import define, field, frozen

PACKAGES = ("netplug_cli.", "netplug_core.", "netplug_backends.")
MEMORY_BACKENDS = ("netplug_backends.memory", "netplug_core.testing")


FLAT = ("addressing", "clock", "errors", "keys", "locks", "log", "names", "records")
IDENTITY = (
    *("_orchestrator", "_namespace", "_handle", "_host_interface", "_host_interface_alias", "_mac", "_endpoint_key"),
    "WorkloadIdentity.",
)
"""The names of a workload, which are values."""

NO_STEPS = (
    *(f"netplug_core.{name}." for name in FLAT),
    "netplug_cli.logs.",
    "netplug_core.datastore.protocol.",
    "netplug_core.decoding.",
    "netplug_core.ipam.model.",
    "netplug_core.netconf.model.",
    "netplug_core.resources.",
    "netplug_core.settings.",
    "netplug_core.cni.request.CNIRequest.",
    "netplug_core.dataplane.protocol.AttachmentPlan.",
    "netplug_core.locks.",  # a lock is taken before what it guards, and released after it
    "netplug_core.ipam.allocation.request.",
    *(f"netplug_core.workload.{name}" for name in IDENTITY),
)


@frozen
class Crossing:
    """A call from one room into another. ``function`` is the called one, with its module."""

    caller: str
    room: str
    function: str


@define
class Walk:
    """The modules that are entered, in that order, each with its first function, and the wrong turns between rooms.

    A room that calls another is at work until its call returns. ``cycles`` enter a room that is at work already, from
    another room. ``returns`` enter a room that was left: its calls had returned, and another room was entered since.

    ``is_step`` is whether a function, with its module, is a step of the walk; what is none is in its caller's room.
    ``is_callback`` is whether it was handed over to be called. Its own calls are a walk of their own, so it may enter
    a room that is at work around it. What ``backends`` do, packages or modules, is left out. ``crossings`` counts the
    calls from one room into another.
    """

    is_step: Callable[[str], bool]
    is_callback: Callable[[str], bool]
    backends: tuple[str, ...] = MEMORY_BACKENDS
    entered: dict[str, str] = field(factory=dict)
    cycles: list[Crossing] = field(factory=list)
    returns: list[Crossing] = field(factory=list)
    callbacks: set[str] = field(factory=set)
    _rooms: list[tuple[str, bool]] = field(factory=list)
    crossings: int = 0
    _left_at: dict[str, int] = field(factory=dict)
    _frames: list[FrameType] = field(factory=list)
    _backend_depth: int = 0

    def enter(self, module: str, function: str) -> None:
        """A function or method is called."""
        self.entered.setdefault(module, function)
        room, name = module.rpartition(".")[0], f"{module}.{function}"
        caller = self._rooms[-1][0] if self._rooms else ""
        is_callback = self.is_callback(name)
        if not self.is_step(name):
            room, is_callback = caller, False
        elif is_callback:
            self.callbacks.add(name)
        elif room != caller:
            self._cross(Crossing(caller, room, name))
        self._rooms.append((room, is_callback))

    def _cross(self, crossing: Crossing) -> None:
        if crossing.room in self._at_work():
            self.cycles.append(crossing)
        elif not self._is_at_work(crossing.room) and self._left_at.get(crossing.room, self.crossings) < self.crossings:
            self.returns.append(crossing)
        self.crossings += 1

    def _at_work(self) -> set[str]:
        """The rooms at work since the last callback began."""
        rooms: set[str] = set()
        for room, is_callback in reversed(self._rooms):
            rooms.add(room)
            if is_callback:
                break
        return rooms

    def _is_at_work(self, room: str) -> bool:
        return any(room == other for other, _ in self._rooms)

    def leave(self) -> None:
        """The function that was called last returns."""
        room, is_callback = self._rooms.pop()
        if not is_callback and not self._is_at_work(room):
            self._left_at[room] = self.crossings

    def record(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function of :func:`sys.setprofile`. What a backend does behind its interface is left out."""
        if event not in ("call", "return"):
            return
        name, code = frame.f_globals.get("__name__", ""), frame.f_code
        if name.startswith(self.backends):
            self._backend_depth += 1 if event == "call" else -1
        # Comprehensions and generated methods have names or files in angle brackets; class bodies are not optimized.
        is_named = not code.co_name.startswith("<") and not code.co_filename.startswith("<")
        if self._backend_depth or not is_named or not code.co_flags & CO_OPTIMIZED or not name.startswith(PACKAGES):
            return
        if event == "call":
            self._frames.append(frame)
            self.enter(name, code.co_qualname)
        elif self._frames and self._frames[-1] is frame:  # a generator that is given up returns without a call
            self._frames.pop()
            self.leave()


@contextmanager
def recorded(walk: Walk) -> Iterator[None]:
    """Record every call of this thread until the context ends."""
    setprofile(walk.record)
    try:
        yield
    finally:
        setprofile(None)


def is_step(function: str) -> bool:
    """Whether a call of a function is a step from room to room."""
    return not function.startswith(NO_STEPS)


def modules_of(walk: Walk) -> set[str]:
    """The modules that were entered, without the flat ones of the core, which are the vocabulary of all others."""
    return set(walk.entered) - {f"netplug_core.{name}" for name in FLAT}
