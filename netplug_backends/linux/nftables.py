"""Tables of the packet filter in the kernel, which libnftables reads and changes in JSON.

The library is called in this process; where the host does not have it, the program ``nft`` is, with the same JSON. Both
work in the network namespace of the calling thread; a process that works in one namespace for long keeps a context of
the library there, in a thread of its own (:class:`KeptNftables`). Whether anything has changed since the last reading
is one netlink message, which ``nftevents`` sends: the kernel counts the transactions of a namespace. It says beforehand
whether the kernel has nftables, and lets this process use it: without, the library would end the process.

Source: libnftables(3), libnftables-json(5); the numbers are those of the kernel's ``linux/netfilter/nf_tables.h``.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from threading import Lock
from typing import Final, Protocol, TypeAlias

from attrs import define, field, frozen

from netplug_backends.linux.nftevents import (
    CountGenerations,
    GenerationCounter,
    NftablesEvents,
    OwnGenerations,
    find_generation,
)
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.packetfilter import DroppingChain
from netplug_core.dataplane.protocol import OWN_NAMESPACE, KernelError
from netplug_core.dataplane.ruleset import (
    BaseChain,
    ChainOutline,
    ChainType,
    Command,
    Element,
    ElementType,
    Hook,
    Jump,
    NamedSet,
    ObservedTable,
    Policy,
    TableChange,
    UnreadableObject,
    render_change,
)
from netplug_core.decoding.tables import find_member, find_object
from netplug_core.resources.fields import PortRange

__all__ = [
    "INSTALLED_BY",
    "LIBRARY",
    "KeptLibrary",
    "KeptNftables",
    "NftablesRuleset",
    "Run",
    "find_problem",
    "load_library",
    "read_dropping_chains",
    "read_listing",
    "read_packets",
    "run_library",
    "run_program",
]

LIBRARY: Final = "libnftables.so.1"
INSTALLED_BY: Final = "apt-get install libnftables1"
"""What brings the library, on Debian."""

_PROGRAM = "nft"
_NOT_INSTALLED = f"neither {LIBRARY} nor the program {_PROGRAM} is installed; run: {INSTALLED_BY}"
_FOLDERS = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin"
_READING, _PROGRAMMING = "reading the packet filter", "programming the packet filter"
_PROGRAM_TIMEOUT_S = 60
_ATTEMPTS = 5  # a listing fails while another process replaces the table

_JUDGING = (Hook.FORWARD.value, Hook.INPUT.value)
_IN_JSON, _PROTOCOLS_AS_NUMBERS = 1 << 4, 1 << 7


# --- who runs commands ------------------------------------------------------------------------------------------------


@frozen
class _Answer:
    """What became of some commands: their output, or in what an error was found."""

    output: str
    error: str = ""


Run: TypeAlias = Callable[[str], "_Answer | None"]
"""Runs commands, which are a text in JSON, as one transaction; None: whatever would run them is not installed."""


class _Function(Protocol):
    argtypes: Sequence[type]
    restype: type | None


@cache
def load_library() -> ctypes.CDLL | None:
    """The library; None if it is not installed. A process that leaves its container loads it there, before."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    context, text, flags = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
    signatures: Mapping[str, tuple[tuple[type, ...], type | None]] = {
        "nft_ctx_new": ((flags,), context),
        "nft_ctx_free": ((context,), None),
        "nft_ctx_buffer_output": ((context,), ctypes.c_int),
        "nft_ctx_buffer_error": ((context,), ctypes.c_int),
        "nft_ctx_output_set_flags": ((context, flags), None),
        "nft_ctx_get_output_buffer": ((context,), text),
        "nft_ctx_get_error_buffer": ((context,), text),
        "nft_run_cmd_from_buffer": ((context, text), ctypes.c_int),
    }
    for name, (arguments, result) in signatures.items():
        function: _Function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


_library_lock = Lock()  # the library keeps some tables for the whole process


@define(eq=False)
class _LibraryContext:
    """A context of the library, with a socket of its own in the namespace in which it was opened."""

    _library: ctypes.CDLL
    _context: int

    @classmethod
    def open(cls, library: ctypes.CDLL) -> _LibraryContext | None:
        """A new one; None: the library cannot be used."""
        with _library_lock:
            context = library.nft_ctx_new(0)
            if not context:
                return None
            library.nft_ctx_output_set_flags(context, _IN_JSON | _PROTOCOLS_AS_NUMBERS)
            library.nft_ctx_buffer_output(context)
            library.nft_ctx_buffer_error(context)
            return cls(library, context)

    def run(self, commands: str) -> _Answer:
        """Run commands. The library empties both buffers as they are taken, so both are."""
        library, context = self._library, self._context
        with _library_lock:
            status = library.nft_run_cmd_from_buffer(context, commands.encode())
            output, error = library.nft_ctx_get_output_buffer(context), library.nft_ctx_get_error_buffer(context)
            return _answer(status, output.decode(errors="replace"), error.decode(errors="replace"))

    def close(self) -> None:
        """Free it. The kernel closes a socket only after what was deleted before has ended: about 10 ms."""
        with _library_lock:
            self._library.nft_ctx_free(self._context)


@define(eq=False)
class KeptLibrary:
    """Runs commands in this process, with one context for all: that of the namespace of the first one."""

    _context: _LibraryContext | None = field(default=None, init=False)

    def __call__(self, commands: str) -> _Answer | None:
        """Run commands. What one of them fails of is not there for the next: the context is as before."""
        library = load_library()
        if library is None:
            return None
        if self._context is None:
            self._context = _LibraryContext.open(library)
        return _Answer("", f"{LIBRARY} cannot be used") if self._context is None else self._context.run(commands)

    def close(self) -> None:
        """Free the context."""
        if self._context is not None:
            self._context.close()
            self._context = None


def run_library(commands: str) -> _Answer | None:
    """Run commands in this process. A context is made for each run, as it belongs to one namespace: it costs 20 us."""
    with closing(KeptLibrary()) as library:
        return library(commands)


def run_program(commands: str) -> _Answer | None:
    """Run commands by the program ``nft``."""
    program = _find_program()
    if program is None:
        return None
    try:
        done = subprocess.run(
            (program, "-p", "-j", "-f", "-"), input=commands, capture_output=True, text=True, check=False,
            timeout=_PROGRAM_TIMEOUT_S, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Answer("", str(error))
    return _answer(done.returncode, done.stdout, done.stderr)


def _find_program() -> str | None:
    return shutil.which(_PROGRAM, path=_FOLDERS)


def find_problem() -> str:
    """Why no packet filter can be programmed on this machine, and what to install; empty if nothing is missing."""
    return "" if load_library() is not None or _find_program() is not None else _NOT_INSTALLED


def _answer(status: int, output: str, error: str) -> _Answer:
    if status == 0:
        return _Answer(output)
    # A line begins with where in the text the error is, which says nothing about a text that no person has written.
    lines = (line.partition("Error: ")[2] or line for line in error.splitlines() if line.strip())
    return _Answer("", next(lines, f"status {status}"))


# --- tables -----------------------------------------------------------------------------------------------------------


@frozen
class _Reading:
    """A table as it was after so many transactions of a namespace."""

    namespace: int
    generation: int
    table: ObservedTable | None


@define(eq=False)
class NftablesRuleset:
    """The :class:`~netplug_core.dataplane.packetfilter.RulesetDataplane` of the calling thread's network namespace.

    ``runners`` are tried in their order until one is installed; ``count`` says how many transactions there were.
    """

    runners: tuple[Run, ...] = (run_library, run_program)
    count: CountGenerations = find_generation
    _readings: dict[str, _Reading] = field(factory=dict, init=False)
    _own: OwnGenerations = field(factory=OwnGenerations, init=False)

    def read(self, name: str) -> ObservedTable | None:
        """List the table, unless nothing of the namespace has changed since the last time."""
        namespace, generation = os.stat(OWN_NAMESPACE).st_ino, self.count(_READING)
        known = self._readings.get(name)
        if known is not None and (known.namespace, known.generation) == (namespace, generation):
            return known.table
        table = self._list(name)
        if self.count(_READING) == generation:
            self._readings[name] = _Reading(namespace, generation, table)
        return table

    def apply(self, change: TableChange) -> None:
        """Make a change."""
        with self._own.noted(self.count, _PROGRAMMING):
            answer = self._run(render_change(change), _PROGRAMMING)
        if answer.error:
            raise KernelError(_PROGRAMMING, answer.error)

    def count_packets(self, table: str, chain: str) -> int:
        """Add up the counters of a chain."""
        self.count(_READING)
        answer = _Answer("")
        for _ in range(_ATTEMPTS):
            answer = self._run(({"list": {"chain": {"family": "inet", "table": table, "name": chain}}},), _READING)
            if not answer.error:
                return read_packets(answer.output)
            chains = self._run(({"list": {"chains": {"family": "inet"}}},), _READING)
            if not chains.error and (table, chain) not in _chain_names(chains.output):
                return 0
        raise KernelError(_READING, answer.error)

    def open_events(self) -> NftablesEvents:
        """Notifications of what others do, from now on: whatever this one has not done.

        Raises:
            KernelError: the kernel refuses a socket.
        """
        return NftablesEvents.open(self._own)

    def find_dropping_chains(self) -> tuple[DroppingChain, ...]:
        """The base chains of all tables that drop what they do not accept, where workloads and the node are judged.

        Raises:
            KernelError: the kernel would not say.
        """
        self.count(_READING)
        answer = self._run(({"list": {"chains": {}}},), _READING)
        if answer.error:
            raise KernelError(_READING, answer.error)
        return read_dropping_chains(answer.output)

    def _list(self, name: str) -> ObservedTable | None:
        answer = _Answer("")
        for _ in range(_ATTEMPTS):
            answer = self._run(({"list": {"table": {"family": "inet", "name": name}}},), _READING)
            if not answer.error:
                return read_listing(name, answer.output)
            tables = self._run(({"list": {"tables": {"family": "inet"}}},), _READING)
            if not tables.error and all(find_member(each, "table", "name") != name for each in _listed(tables.output)):
                return None
        raise KernelError(_READING, answer.error)

    def _run(self, commands: Sequence[Command], operation: str) -> _Answer:
        text = json.dumps({"nftables": commands})
        for run in self.runners:
            answer = run(text)
            if answer is not None:
                return answer
        raise KernelError(operation, _NOT_INSTALLED)


@define(eq=False)
class KeptNftables:
    """The :class:`~netplug_core.dataplane.packetfilter.RulesetDataplane` of one namespace, for a process that stays.

    One thread does it all, in the namespace in which it was opened, wherever the caller is. It keeps its sockets and a
    context of the library: the kernel closes such a socket only after what was deleted has ended, which takes as long
    as ten transactions.
    """

    _thread: Executor
    _ruleset: NftablesRuleset

    @classmethod
    @contextmanager
    def open(cls, *, has_library: bool = True) -> Iterator[KeptNftables]:
        """In the calling thread's namespace. Without the library, or where it is not asked for, the program is run."""
        library, counter = KeptLibrary(), GenerationCounter()
        runners: tuple[Run, ...] = (library, run_program) if has_library else (run_program,)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="nftables") as thread:
            thread.submit(_do_nothing).result()  # the thread begins now: it has the namespace of who begins it
            try:
                yield cls(thread, NftablesRuleset(runners, counter))
            finally:
                for each in (library, counter):
                    thread.submit(each.close).result()

    def read(self, name: str) -> ObservedTable | None:
        """List the table, unless nothing of the namespace has changed since the last time."""
        return self._thread.submit(self._ruleset.read, name).result()

    def apply(self, change: TableChange) -> None:
        """Make a change."""
        self._thread.submit(self._ruleset.apply, change).result()

    def count_packets(self, table: str, chain: str) -> int:
        """Add up the counters of a chain."""
        return self._thread.submit(self._ruleset.count_packets, table, chain).result()

    def open_events(self) -> NftablesEvents:
        """Notifications of what others do, from now on: whatever this one has not done.

        Raises:
            KernelError: the kernel refuses a socket.
        """
        return self._thread.submit(self._ruleset.open_events).result()

    def find_dropping_chains(self) -> tuple[DroppingChain, ...]:
        """The base chains of all tables that drop what they do not accept, where workloads and the node are judged.

        Raises:
            KernelError: the kernel would not say.
        """
        return self._thread.submit(self._ruleset.find_dropping_chains).result()


def _do_nothing() -> None:
    """The first work of a thread."""


# --- what is listed ---------------------------------------------------------------------------------------------------


def _listed(output: str) -> Iterable[Mapping[str, object]]:
    found = find_member(json.loads(output), "nftables")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else ()


def read_listing(name: str, output: str) -> ObservedTable:
    """A table, as libnftables lists it."""
    chains: dict[str, BaseChain | None] = {}
    marks: dict[str, list[str]] = {}
    sets: list[NamedSet] = []
    unreadable: list[UnreadableObject] = []
    for each in _listed(output):
        for kind, members in each.items():
            try:
                if kind == "chain":
                    chains[_text(members, "name")] = _read_base(members)
                elif kind == "rule":
                    marks.setdefault(_text(members, "chain"), []).append(_text(members, "comment"))
                elif kind in {"set", "map"}:
                    sets.append(_read_set(members))
                elif kind not in {"metainfo", "table"}:
                    unreadable.append(UnreadableObject(kind, _text(members, "name")))
            except ValueError:
                unreadable.append(UnreadableObject(kind, _text(members, "name")))
    outlines = (
        ChainOutline(name=chain, base=base, marks=tuple(marks.get(chain, ()))) for chain, base in chains.items()
    )
    return ObservedTable(name=name, sets=tuple(sets), chains=tuple(outlines), unreadable=tuple(unreadable))


def read_dropping_chains(output: str) -> tuple[DroppingChain, ...]:
    """Those of the listed chains that drop what they do not accept, where workloads and the node are judged."""
    chains = (each["chain"] for each in _listed(output) if "chain" in each)
    return tuple(
        DroppingChain(
            family=_text(each, "family"),
            table=_text(each, "table"),
            name=_text(each, "name"),
            hook=Hook(_text(each, "hook")),
        )
        for each in chains
        if _text(each, "policy") == Policy.DROP.value and _text(each, "hook") in _JUDGING
    )


def read_packets(output: str) -> int:
    """How many packets the counters of the listed rules have seen."""
    rules = (each["rule"] for each in _listed(output) if "rule" in each)
    statements = (_member(rule, "expr") for rule in rules)
    counts = (
        _member(_member(one, "counter"), "packets")
        for found in statements
        for one in (found if isinstance(found, list) else ())
    )
    return sum(count for count in counts if isinstance(count, int))


def _chain_names(output: str) -> frozenset[tuple[str, str]]:
    chains = (each["chain"] for each in _listed(output) if "chain" in each)
    return frozenset((_text(each, "table"), _text(each, "name")) for each in chains)


def _read_base(members: object) -> BaseChain | None:
    if _member(members, "hook") is None:
        return None
    priority = _member(members, "prio")
    if not isinstance(priority, int):
        raise ValueError(priority)
    chain_type, hook = ChainType(_text(members, "type")), Hook(_text(members, "hook"))
    return BaseChain(chain_type, hook, priority, Policy(_text(members, "policy")))


def _read_set(members: object) -> NamedSet:
    """A set or a map.

    Raises:
        ValueError: it is one that no table of ours has.
    """
    kinds, value_kind = _member(members, "type"), _member(members, "map")
    types = tuple(ElementType(kind) for kind in (kinds if isinstance(kinds, list) else [kinds]))
    value_type = None if value_kind is None else ElementType(value_kind)
    flags = _member(members, "flags") or []
    if flags not in ([], "interval", ["interval"]) or _member(members, "timeout") is not None:
        raise ValueError(flags)
    is_interval, listed = bool(flags), _member(members, "elem")
    elements = (
        _read_element(each, types, is_map=value_type is not None, is_interval=is_interval)
        for each in (listed if isinstance(listed, list) else ())
    )
    return NamedSet(
        name=_text(members, "name"),
        types=types,
        value_type=value_type,
        is_interval=is_interval,
        elements=frozenset(elements),
    )


def _read_element(listed: object, types: tuple[ElementType, ...], *, is_map: bool, is_interval: bool) -> Element:
    key, value = listed, None
    if is_map:
        key, found = listed if isinstance(listed, list) else [listed]  # a ValueError, if it is something else
        value = _read_value(found)
    parts = _member(key, "concat") if len(types) > 1 else [key]
    if not isinstance(parts, list) or len(parts) != len(types):
        raise ValueError(listed)
    return Element(
        tuple(_read_part(part, one, is_interval=is_interval) for part, one in zip(parts, types, strict=True)), value
    )


def _read_value(listed: object) -> Address | Jump:
    if isinstance(listed, Mapping):
        return Jump(_text(_member(listed, "jump"), "target"))
    return _parse_address(listed)


def _read_part(listed: object, kind: ElementType, *, is_interval: bool) -> Address | Prefix | str | int | PortRange:
    match kind:
        case ElementType.INTERFACE_NAME if isinstance(listed, str):
            return listed
        case ElementType.PROTOCOL | ElementType.PORT:
            return _read_number(listed, is_interval=is_interval)
        case _:
            pass
    if not is_interval:
        return _parse_address(listed)
    if isinstance(listed, str):
        return _parse_address(listed).host_prefix
    prefix = find_object({"listed": listed}, "listed", "prefix")
    length = prefix.get("len")
    if not isinstance(length, int):
        raise ValueError(listed)
    return Prefix.at(_parse_address(prefix.get("addr")), length)


def _read_number(listed: object, *, is_interval: bool) -> int | PortRange:
    found = _member(listed, "range") if isinstance(listed, Mapping) else [listed, listed]
    first, last = found if isinstance(found, list) else [found]  # a ValueError, if it is something else
    if not isinstance(first, int) or not isinstance(last, int):
        raise ValueError(listed)
    return PortRange(first, last) if is_interval else first


def _parse_address(listed: object) -> Address:
    """An address, as the library writes it. A set has thousands, so the C library reads them."""
    text = str(listed)
    family, number = (Family.IPV6, socket.AF_INET6) if ":" in text else (Family.IPV4, socket.AF_INET)
    try:
        return Address(family, int.from_bytes(socket.inet_pton(number, text), "big"))
    except OSError:
        raise ValueError(text) from None


def _member(members: object, name: str) -> object:
    return find_member({"members": members}, "members", name)


def _text(members: object, name: str) -> str:
    found = _member(members, name)
    return found if isinstance(found, str) else ""
