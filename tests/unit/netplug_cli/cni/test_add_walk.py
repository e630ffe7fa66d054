"""The way of an ADD through the code: which modules of ours it enters, in which order, and how many.

A module counts when one of its functions is called, or a method of an object that is not a frozen value. The vocabulary
does not count: the flat modules, ``resources`` and ``ipam.model`` (what is stored), and the logger. What a backend does
behind its interface does not count either. ``pytest -rP`` shows the walk with all modules, the vocabulary included.
"""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from types import FrameType

import pytest
from attrs import define, field, has

from netplug_cli.cni.main import serve
from netplug_core.flows.world import CNIWorld
from tests.harness.cni_node import CNINodeHarness, ContainerInterface

MAX_MODULES = 28
"""Thirty, less the two that the memory backends replace here: ``wiring.cni`` and ``registry``."""

PACKAGES = ("netplug_cli.", "netplug_core.", "netplug_backends.")
BACKENDS = ("netplug_backends.memory", "netplug_core.testing")
VOCABULARY = (
    "netplug_cli.logs",
    "netplug_core.addressing",
    "netplug_core.clock",
    "netplug_core.errors",
    "netplug_core.ipam.model.",
    "netplug_core.log",
    "netplug_core.names",
    "netplug_core.records",
    "netplug_core.resources.",
)
CONTAINER = ContainerInterface()
ENVIRONMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": CONTAINER.id,
    "CNI_NETNS": CONTAINER.netns,
    "CNI_IFNAME": CONTAINER.ifname,
    "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1",
    "CNI_PATH": "/opt/cni/bin",
}


@define
class Walk:
    """The modules that are entered, in that order, each with its first function; ``counted`` are those that count."""

    entered: dict[str, str] = field(factory=dict)
    counted: dict[str, str] = field(factory=dict)
    _backend_depth: int = 0

    def record(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function of :func:`sys.setprofile`."""
        name, code = frame.f_globals.get("__name__", ""), frame.f_code
        if name.startswith(BACKENDS):
            self._backend_depth += {"call": 1, "return": -1}.get(event, 0)
        # Comprehensions and generated methods have names or files in angle brackets; class bodies are not optimized.
        is_named = not code.co_name.startswith("<") and not code.co_filename.startswith("<")
        is_own_function = is_named and bool(code.co_flags & CO_OPTIMIZED)
        if event != "call" or self._backend_depth or not is_own_function or not name.startswith(PACKAGES):
            return
        self.entered.setdefault(name, code.co_qualname)
        if not name.startswith(VOCABULARY) and not is_method_of_value(frame):
            self.counted.setdefault(name, code.co_qualname)


def is_method_of_value(frame: FrameType) -> bool:
    """Whether a call is one of a method of a frozen attrs class."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    if not names or names[0] not in ("self", "cls"):
        return False
    owner = frame.f_locals[names[0]]
    kind = owner if isinstance(owner, type) else type(owner)
    return has(kind) and kind.__setattr__ is not object.__setattr__


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> CNINodeHarness:
    harness = CNINodeHarness()
    harness.add_pool("main", "10.0.0.0/24")
    harness.dataplane.add_namespace(CONTAINER.netns)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["/opt/cni/bin/netplug"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(harness.config).encode())))
    return harness


def test_an_add_enters_few_modules(node: CNINodeHarness, capfd: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def open_world(_netconf: object, _log: object) -> Iterator[CNIWorld]:
        yield node.world

    walk = Walk()
    sys.setprofile(walk.record)
    try:
        status = serve(open_world, is_own_namespace=lambda _path: False)
    finally:
        sys.setprofile(None)
    assert status == 0, capfd.readouterr()
    for name, function in walk.entered.items():
        sys.stdout.write(f"{'counts' if name in walk.counted else '      '} {name}: {function}\n")
    assert len(walk.counted) <= MAX_MODULES, list(walk.counted)
