"""The configuration of host-local, as a runtime sends it, and what its ranges mean together.

Besides ``ipam``, a runtime may name ranges and addresses as the capabilities ``ipRanges`` and ``ips``, and a person
addresses as ``args.cni.ips``. A teardown reads only where the files are.

Every error of the ranges names the key, its value, and what is accepted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import REQUESTED_ADDRESS, STRING, Codec, Refused, checked
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = [
    "DEFAULT_DATA_FOLDER", "RANGES_WHERE", "SUBNET_ACCEPTED", "AddressRange", "FolderSettings", "HostLocalSettings",
    "PodCIDR", "RangeSet", "RangeSetSettings", "RangeSettings", "load_folder_settings", "load_settings",
    "make_range_sets", "require_one_set_per_family", "settings_decoder",
]  # fmt: skip


DEFAULT_DATA_FOLDER = "/var/lib/cni/networks"
"""Where the folders of networks are if ``dataDir`` does not say."""

SUBNET_ACCEPTED: Final = "a CIDR such as 10.22.0.0/16, usePodCidr or usePodCidrIPv6 is expected"
"""What an error about a subnet says would be accepted."""

_WHERE: Final = "network configuration"

RANGES_WHERE: Final = f"{_WHERE}.ipam.ranges"
"""Where range sets are expected."""


class PodCIDR(enum.Enum):
    """In place of a subnet: the CIDR of a family that the orchestrator gave the node."""

    IPV4 = "usePodCidr"
    IPV6 = "usePodCidrIPv6"

    @property
    def family(self) -> Family:
        """The family of the CIDR."""
        return Family.IPV4 if self is PodCIDR.IPV4 else Family.IPV6


@frozen(kw_only=True)
class RangeSettings:
    """A range as configured: ``first`` and ``last`` are addresses of the subnet. ``where`` names it in errors."""

    subnet: Prefix | PodCIDR | None = None
    first: Address | None = None
    last: Address | None = None
    gateway: Address | None = None
    where: str = ""


@frozen(kw_only=True)
class RangeSetSettings:
    """A range set as configured."""

    ranges: tuple[RangeSettings, ...]
    where: str


@frozen(kw_only=True)
class FolderSettings:
    """Where the files of a network are: in the folder of that name in ``data_folder``."""

    data_folder: str = DEFAULT_DATA_FOLDER
    network: str = ""


@frozen(kw_only=True)
class HostLocalSettings:
    """All that host-local is configured with.

    ``requested`` are the addresses that are asked for, besides that of CNI_ARGS. ``version`` is the CNI version of the
    call; empty if it names none.
    """

    folder: FolderSettings
    range_sets: tuple[RangeSetSettings, ...]
    requested: tuple[Address, ...]
    version: str

    @property
    def uses_pod_cidrs(self) -> bool:
        """Whether a range is a CIDR that the orchestrator gave the node."""
        return any(isinstance(one.subnet, PodCIDR) for ranges in self.range_sets for one in ranges.ranges)


def load_settings(netconf: Mapping[str, object]) -> HostLocalSettings:
    """The settings in a network configuration.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: a value is not accepted.
    """
    document = _DECODER.decode(netconf, _Document, _WHERE)
    ipam = document.ipam
    single = ((ipam.single,),) if ipam.single.subnet is not None else ()
    sets = (
        *_located(document.ip_ranges, lambda n: f"{_WHERE}.runtimeConfig.ipRanges[{n}]"),
        *_located(single, lambda _: f"{_WHERE}.ipam", is_listed=False),
        *_located(ipam.ranges, lambda n: f"{_WHERE}.ipam.ranges[{n}]"),
    )
    return HostLocalSettings(
        folder=document.folder,
        range_sets=sets,
        requested=tuple(dict.fromkeys((*document.argument_addresses, *document.runtime_addresses))),
        version=document.version,
    )


def load_folder_settings(netconf: Mapping[str, object]) -> FolderSettings:
    """Where the files of the network are: all that a teardown reads.

    Raises:
        DecodeError, ConfigurationError: it cannot be known.
    """
    return _TEARDOWN_DECODER.decode(netconf, FolderSettings, _WHERE)


def _located(
    sets: tuple[tuple[RangeSettings, ...], ...], where: Callable[[int], str], *, is_listed: bool = True
) -> tuple[RangeSetSettings, ...]:
    return tuple(
        RangeSetSettings(
            where=where(n),
            ranges=tuple(
                evolve(one, where=f"{where(n)}[{m}]" if is_listed else where(n)) for m, one in enumerate(ranges)
            ),
        )
        for n, ranges in enumerate(sets)
    )


# --- codecs and tables ------------------------------------------------------------------------------------------------


def _read_subnet(value: object) -> Prefix | PodCIDR | str:
    text = STRING.decode(value)
    if not text:
        return text
    for name in PodCIDR:
        if text.lower() == name.value.lower():
            return name
    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise Refused(f"{error}; {SUBNET_ACCEPTED}", value=text) from None


def _read_address(value: object) -> Address | str:
    text = STRING.decode(value)
    try:
        return Address.parse(text) if text else text
    except ValueError:
        raise Refused("an IP address such as 10.22.0.10 is expected", value=text) from None


@frozen(kw_only=True)
class _IPAM:
    single: RangeSettings = RangeSettings()
    ranges: tuple[tuple[RangeSettings, ...], ...] = ()


@frozen(kw_only=True)
class _Document:
    folder: FolderSettings = FolderSettings()
    ipam: _IPAM = _IPAM()
    version: str = ""
    ip_ranges: tuple[tuple[RangeSettings, ...], ...] = ()
    runtime_addresses: tuple[Address, ...] = ()
    argument_addresses: tuple[Address, ...] = ()


_ADDRESS: Final = Codec(_read_address, schema=STRING.schema)
_REQUESTED: Final = ListOf(REQUESTED_ADDRESS)
_ABSOLUTE_PATH: Final = checked(
    STRING,
    lambda path: str(path).startswith("/"),
    "an absolute path is expected",
    schema={"pattern": "^(?:/[^\\u0000]*)?$"},
)
_RANGES: Final = ListOf(ListOf(RangeSettings))

_FOLDER_TABLE: Final = Table(
    cls=FolderSettings,
    fields={
        "data_folder": Field(("ipam", "dataDir"), _ABSOLUTE_PATH, is_unset_if_empty=True),
        "network": Field("name", STRING),
    },
)

_DECODER: Final = Decoder(
    cni_error,
    tables=(
        Table(
            cls=_Document,
            fields={
                "folder": Field((), FolderSettings),
                "ipam": Field("ipam", _IPAM),
                "version": Field("cniVersion", STRING),
                "ip_ranges": Field(("runtimeConfig", "ipRanges"), _RANGES),
                "runtime_addresses": Field(("runtimeConfig", "ips"), _REQUESTED),
                "argument_addresses": Field(("args", "cni", "ips"), _REQUESTED),
            },
        ),
        Table(
            cls=_IPAM,
            fields={
                "single": Field((), RangeSettings),
                "ranges": Field("ranges", _RANGES),
            },
        ),
        _FOLDER_TABLE,
        Table(
            cls=RangeSettings,
            fields={
                "subnet": Field("subnet", Codec(_read_subnet, schema=STRING.schema), is_unset_if_empty=True),
                "first": Field("rangeStart", _ADDRESS, is_unset_if_empty=True),
                "last": Field("rangeEnd", _ADDRESS, is_unset_if_empty=True),
                "gateway": Field("gateway", _ADDRESS, is_unset_if_empty=True),
            },
        ),
    ),
)
_TEARDOWN_DECODER: Final = Decoder(cni_error, tables=(_FOLDER_TABLE,))


def settings_decoder() -> tuple[Decoder, type]:
    """The decoder of the settings, and the class that is read from a configuration's object."""
    return _DECODER, _Document


# --- ranges, checked -------------------------------------------------------------------------------------------------

_SMALLEST_HOST_BITS = 2  # without the network address and the gateway, a shorter rest has no address


@frozen(kw_only=True)
class AddressRange:
    """The addresses of a subnet from ``first`` to ``last``; ``gateway`` is never assigned."""

    subnet: Prefix
    first: Address
    last: Address
    gateway: Address

    def contains(self, address: Address) -> bool:
        """Whether the address lies in it."""
        return address.family is self.first.family and self.first <= address <= self.last

    def overlaps(self, other: AddressRange) -> bool:
        """Whether an address lies in both."""
        is_same_family = self.first.family is other.first.family
        return is_same_family and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@frozen
class RangeSet:
    """Ranges of one family that give a container one address."""

    ranges: tuple[AddressRange, ...]

    @property
    def family(self) -> Family:
        """The family of its addresses."""
        return self.ranges[0].first.family

    def find_range(self, address: Address) -> AddressRange | None:
        """The range that an address lies in."""
        return next((one for one in self.ranges if one.contains(address)), None)

    def candidates(self, after: Address | None) -> Iterator[tuple[Address, AddressRange]]:
        """Every address once with its range, those after the given one first, as in a ring; gateways are left out.

        If the given one lies in no range, the first range comes first.
        """
        position = next((n for n, one in enumerate(self.ranges) if after is not None and one.contains(after)), None)
        if position is None or after is None:
            parts = [(one, one.first.value, one.last.value) for one in self.ranges]
        else:
            begun = self.ranges[position]
            others = (*self.ranges[position + 1 :], *self.ranges[:position])
            parts = [
                (begun, after.value + 1, begun.last.value),
                *((one, one.first.value, one.last.value) for one in others),
                (begun, begun.first.value, after.value),
            ]
        for one, first, last in parts:
            for value in range(first, last + 1):
                address = Address(self.family, value)
                if address != one.gateway:
                    yield address, one

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges))


def make_range_sets(
    settings: HostLocalSettings, node: str = "", pod_cidrs: tuple[Prefix, ...] = ()
) -> tuple[RangeSet, ...]:
    """The range sets of a configuration, with the CIDRs that the orchestrator gave the node in place of their names.

    Raises:
        ConfigurationError: a range has no addresses, is of another family than its set, or overlaps another one.
        Unavailable: the node has no CIDR yet.
    """
    if not settings.range_sets:
        accepted = "no IP ranges are specified; a subnet or a list of range sets is expected"
        raise ConfigurationError(RANGES_WHERE, [], accepted)
    made = tuple(_make_range_set(one, node, pod_cidrs) for one in settings.range_sets)
    for (n, one), (m, other) in combinations(enumerate(made), 2):
        if _overlap(one.ranges, other.ranges):
            accepted = f"range set {m} overlaps range set {n} ({one})"
            raise ConfigurationError(settings.range_sets[m].where, str(other), accepted)
    return made


def require_one_set_per_family(settings: HostLocalSettings, range_sets: tuple[RangeSet, ...]) -> None:
    """Refuse two range sets of one family, for a CNI version in which a result has one address of a family.

    Raises:
        ConfigurationError: naming the second set of a family.
    """
    for (_, one), (m, other) in combinations(enumerate(range_sets), 2):
        if one.family is other.family:
            accepted = f"a result of this CNI version has one address of a family; leave one {one.family} range set"
            raise ConfigurationError(settings.range_sets[m].where, str(other), accepted)


def _make_range_set(settings: RangeSetSettings, node: str, pod_cidrs: tuple[Prefix, ...]) -> RangeSet:
    if not settings.ranges:
        raise ConfigurationError(settings.where, [], "a range set with at least one range is expected")
    made: list[AddressRange] = []
    for one in settings.ranges:
        new = _make_range(one, node, pod_cidrs)
        if made and new.subnet.family is not made[0].subnet.family:
            accepted = f"a set is of one family, and its first range is {made[0].subnet.family}"
            raise ConfigurationError(f"{one.where}.subnet", str(new.subnet), accepted)
        if _overlap(made, (new,)):
            raise ConfigurationError(one.where, str(new), "it overlaps another range of the same set")
        made.append(new)
    return RangeSet(tuple(made))


def _overlap(some: Iterable[AddressRange], others: tuple[AddressRange, ...]) -> bool:
    return any(one.overlaps(other) for one in some for other in others)


def _make_range(settings: RangeSettings, node: str, pod_cidrs: tuple[Prefix, ...]) -> AddressRange:
    """One range: by default from the first address after the network address to the last one, or before a broadcast."""
    subnet = _find_subnet(settings, node, pod_cidrs)
    if subnet.family.width - subnet.length < _SMALLEST_HOST_BITS:
        accepted = f"it has too few addresses; at most /{subnet.family.width - _SMALLEST_HOST_BITS} is possible"
        raise ConfigurationError(f"{settings.where}.subnet", str(subnet), accepted)
    last = subnet.nth(subnet.size - (2 if subnet.family is Family.IPV4 else 1))
    made = AddressRange(
        subnet=subnet,
        first=settings.first or subnet.nth(1),
        last=settings.last or last,
        gateway=settings.gateway or subnet.nth(1),
    )
    if made.gateway.family is not subnet.family:
        accepted = f"an {subnet.family} address is expected, as {subnet} is"
        raise ConfigurationError(f"{settings.where}.gateway", str(made.gateway), accepted)
    for key, address in (("rangeStart", made.first), ("rangeEnd", made.last)):
        if not subnet.contains(address):
            raise ConfigurationError(f"{settings.where}.{key}", str(address), f"an address of {subnet} is expected")
    if made.first > made.last:
        accepted = f"an address of {subnet} from {made.first} on is expected"
        raise ConfigurationError(f"{settings.where}.rangeEnd", str(made.last), accepted)
    return made


def _find_subnet(settings: RangeSettings, node: str, pod_cidrs: tuple[Prefix, ...]) -> Prefix:
    match settings.subnet:
        case Prefix():
            return settings.subnet
        case PodCIDR():
            return _find_pod_cidr(settings.subnet, f"{settings.where}.subnet", node, pod_cidrs)
    raise ConfigurationError(f"{settings.where}.subnet", None, SUBNET_ACCEPTED)


def _find_pod_cidr(wanted: PodCIDR, where: str, node: str, pod_cidrs: tuple[Prefix, ...]) -> Prefix:
    """The CIDR of a family among those of a node."""
    if not pod_cidrs:
        raise Unavailable(f"node {node}", f"no podCidr for node {node}; the orchestrator has not assigned one")
    found = [prefix for prefix in pod_cidrs if prefix.family is wanted.family]
    if len(found) > 1:
        accepted = f"ClusterCIDR contains two ranges of the same type: {', '.join(map(str, found))}"
        raise ConfigurationError(where, wanted.value, accepted)
    if not found:
        has = ", ".join(map(str, pod_cidrs))
        accepted = f"{wanted.value} found but there is no {wanted.family} CIDR configured: node {node} has {has}"
        raise ConfigurationError(where, wanted.value, accepted)
    return found[0]
