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
BACKENDS = ("netplug_backends.memory", "netplug_core.testing")


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
    a room that is at work around it.
    """

    is_step: Callable[[str], bool]
    is_callback: Callable[[str], bool]
    entered: dict[str, str] = field(factory=dict)
    cycles: list[Crossing] = field(factory=list)
    returns: list[Crossing] = field(factory=list)
    callbacks: set[str] = field(factory=set)
    _rooms: list[tuple[str, bool]] = field(factory=list)
    _entries: int = 0
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
        elif not self._is_at_work(crossing.room) and self._left_at.get(crossing.room, self._entries) < self._entries:
            self.returns.append(crossing)
        self._entries += 1

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
            self._left_at[room] = self._entries

    def record(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function of :func:`sys.setprofile`. What a backend does behind its interface is left out."""
        if event not in ("call", "return"):
            return
        name, code = frame.f_globals.get("__name__", ""), frame.f_code
        if name.startswith(BACKENDS):
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
