"""The configuration of host-local, as a runtime sends it; ``ranges`` checks what its ranges mean together.

Besides ``ipam``, a runtime may name ranges and addresses as the capabilities ``ipRanges`` and ``ips``, and a person
addresses as ``args.cni.ips``. A teardown reads only where the files are.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import REQUESTED_ADDRESS, STRING, Codec, Refused, checked
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error

__all__ = [
    "DEFAULT_DATA_FOLDER", "RANGES_WHERE", "SUBNET_ACCEPTED", "FolderSettings", "HostLocalSettings", "PodCIDR",
    "RangeSetSettings", "RangeSettings", "load_folder_settings", "load_settings", "settings_decoder",
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
