"""The network configuration as values, defaults filled in (spec 2.1 to 2.3).

``load`` makes them; flows and wiring read them. String booleans and deprecated keys exist only in ``load``. Empty texts
and tuples mean not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.errors import ConfigurationError, redacted_repr
from netplug_core.log import LogSettings
from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "BLOCK_IPAM", "HOST_LOCAL_IPAM", "LINUX_DATAPLANE", "MAX_MTU", "MAX_QUEUES", "ContainerLabel", "ContainerSettings",
    "FeatureControl", "IPAMConfig", "NetConf", "Requested", "RequestedAddress", "RuntimeParameters",
]  # fmt: skip

BLOCK_IPAM = "netplug-ipam"
"""The ``ipam.type`` whose addresses come from pools."""

HOST_LOCAL_IPAM = "host-local"
"""The ``ipam.type`` whose addresses come from ranges of one host (spec 1)."""

LINUX_DATAPLANE = "linux"
"""The dataplane that makes interfaces with the kernel's own means."""

MAX_MTU = 0xFFFF
MAX_QUEUES = 4096  # the kernel refuses more for any link


@frozen(kw_only=True)
class IPAMConfig:
    """The ``ipam`` object (spec 2.2); pools are names or CIDRs in the order to try them.

    ``routes`` and ``resolv_conf`` belong to host-local: the destinations that replace the default routes, and a file
    with settings of name resolution. Its ranges are decoded by that IPAM itself. ``is_delegated``: the addresses are
    those of another plugin, a program that is executed; of its keys only ``type`` is read.
    """

    type: str = ""
    assign_ipv4: bool = True
    assign_ipv6: bool = False
    ipv4_pools: tuple[str, ...] = ()
    ipv6_pools: tuple[str, ...] = ()
    routes: tuple[Prefix, ...] = ()
    resolv_conf: str = ""
    is_delegated: bool = False


@frozen(kw_only=True)
class ContainerSettings:
    """Settings inside the container's namespace."""

    allow_ip_forwarding: bool = False


@frozen(kw_only=True)
class FeatureControl:
    """Features that are off unless asked for: annotations by which a pod can reach what is not its own (spec 2.4)."""

    ip_addrs_no_ipam: bool = False
    floating_ips: bool = False
    allowed_source_prefixes: bool = False


@frozen(kw_only=True)
class ContainerLabel:
    """A label that an orchestrator of plain containers sends, in the characters that labels may have."""

    name: str
    value: str = ""


@frozen(kw_only=True)
class RuntimeParameters:
    """The addresses and the MAC that a configuration asks for: by capabilities of the runtime, and by ``args.cni``.

    Source: CNI conventions, "Dynamic Plugin specific fields" and "args in network config".
    """

    runtime_ips: tuple[Address, ...] = ()
    argument_ips: tuple[Address, ...] = ()
    runtime_mac: str = ""
    argument_mac: str = ""


@frozen(kw_only=True)
class RequestedAddress:
    """An address that the caller of an ADD asks for; ``source`` says where it stands."""

    address: Address
    source: str


@frozen(kw_only=True)
class Requested:
    """What the caller of an ADD asks for, wherever it stands: at most one address of a family, and a MAC or none."""

    addresses: tuple[RequestedAddress, ...] = ()
    mac: str = ""


@frozen(kw_only=True)
class NetConf:
    """One network configuration.

    ``valid_attachments`` is GC's list of container and interface; None if the runtime sent none. ``disables_gc``: GC
    does nothing. ``own_keys`` has every
    key for this plugin as it came, also keys that no field holds; it is never shown. ``unsupported`` is the error about
    the first setting that does not work yet. ``ignored_keys`` are those of a datastore that is not the configured one.
    ``deprecated_keys`` are those that still work, each with the key to use in its place.
    ``pod_annotations`` are those that the runtime sent by its capability; None if the plugin's configuration does not
    declare that capability, or the runtime does not have it. ``runtime`` is what the runtime asks for in the same way.
    ``labels`` are for the endpoint of a container without a pod; the last one of a name counts.
    """

    type: str = ""
    nodename: str = ""
    hostname: str = ""
    nodename_file: str = "/var/lib/netplug/nodename"
    nodename_file_optional: bool = True
    datastore: DatastoreSettings = field(factory=DatastoreSettings)
    log: LogSettings = field(factory=LogSettings)
    ipam: IPAMConfig = IPAMConfig()
    container_settings: ContainerSettings = ContainerSettings()
    feature_control: FeatureControl = FeatureControl()
    policy_type: str = ""
    readiness_gates: tuple[str, ...] = field(default=(), repr=redacted_repr)
    num_queues: int = 1
    mtu: int = 0
    mtu_file: str = "/var/lib/netplug/mtu"
    require_mtu_file: bool = False
    include_default_routes: bool = False
    disables_gc: bool = False
    policy_setup_timeout_s: int = 0
    endpoint_status_dir: str = "/var/run/netplug/endpoint-status"
    ipam_lock_file: str = "/var/run/netplug/ipam.lock"
    release_record_dir: str = "/var/lib/netplug/release-records"
    device_type: str = "veth"
    dataplane_type: str = LINUX_DATAPLANE
    runtime: RuntimeParameters = RuntimeParameters()
    pod_annotations: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    labels: tuple[ContainerLabel, ...] = field(default=(), repr=False)
    valid_attachments: frozenset[tuple[str, str]] | None = None
    own_keys: Mapping[str, object] = field(factory=dict, repr=False, eq=False)
    unsupported: ConfigurationError | None = field(default=None, repr=False, eq=False)
    ignored_keys: tuple[str, ...] = field(default=(), eq=False)
    deprecated_keys: tuple[tuple[str, str], ...] = field(default=(), eq=False)

    @property
    def has_orchestrator(self) -> bool:
        """Whether the orchestrator's API can be asked: it is the datastore, or the configuration says where it is."""
        return self.datastore.is_kubernetes or self.datastore.kubernetes.is_configured
