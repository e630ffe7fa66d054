"""From the objects of a static manifest to the settings of an Installation. Pure.

The operator calls it before it moves the first node. A cluster is converted only if every setting of the manifest is
known, and none of the Installation contradicts one that pods depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import asdict, evolve, frozen

from netplug_core.addressing import Family
from netplug_core.errors import ConfigurationError
from netplug_core.installation.cluster import IncompatibleCluster
from netplug_core.installation.document import InstallationDocument, overlaid, select, write_spec
from netplug_core.installation.pools import PoolAction, plan_pools
from netplug_core.installation.settings import ClusterFacts, ResolvedInstallation, encapsulation_of, resolve
from netplug_core.installation.static_settings import (
    STATIC_DAEMONSET,
    StaticObjects,
    StaticPod,
    find_conflist_problems,
    find_pod_problems,
    read_conflist_settings,
    read_static_conflist,
    read_static_pod,
)
from netplug_core.names import MANAGED_BY
from netplug_core.resources.fields import Metadata
from netplug_core.resources.installation import (
    MAX_INSTALLATION_POOLS,
    AddressDetection,
    CNIFeatures,
    CNISettings,
    ContainerResources,
    ImagePullPolicy,
    ImagePullSecret,
    Installation,
    InstallationPool,
    InstallationSpec,
    InstallMode,
    KubernetesAddress,
    NodeUpdate,
    RollingUpdate,
    Switch,
    Sysctl,
)
from netplug_core.resources.ippool import IPPool

__all__ = ["Conversion", "convert"]

Json = Mapping[str, object]

_COMPARED: Final[Mapping[str, str]] = {
    "cni": "spec.cni.type",
    "ipam": "spec.cni.ipam.type",
    "bin_dir": "spec.cni.binDir",
    "conf_dir": "spec.cni.confDir",
    "bgp": "spec.netplugNetwork.bgp",
    "mtu": "spec.netplugNetwork.mtu",
    "policy_setup_timeout_s": "spec.netplugNetwork.linuxPolicySetupTimeoutSeconds",
    "host_ports": "spec.netplugNetwork.hostPorts",
    "container_ip_forwarding": "spec.netplugNetwork.containerIPForwarding",
    "pod_interface_type": "spec.netplugNetwork.linuxPodInterfaceType",
    "dataplane": "spec.netplugNetwork.linuxDataplane",
    "sysctls": "spec.netplugNetwork.sysctl",
    "features": "spec.netplugNetwork.cniFeatures",
    "readiness_gates": "spec.netplugNetwork.readinessGates",
}
"""Settings that pods depend on: during a conversion they may not change."""

_MTU_VARIABLES: Final = ("CNI_MTU", "NETPLUG_IPINIPMTU", "NETPLUG_VXLANMTU")
_METHODS: Final = ("interface", "skip-interface", "can-reach", "cidr")


@frozen(kw_only=True)
class Conversion:
    """``missing`` are the members of a ``spec`` that the Installation lacks. It gets them before a node is moved.

    With ``problems`` nothing may be done.
    """

    missing: Json
    problems: tuple[ConfigurationError, ...] = ()


def convert(
    objects: StaticObjects, document: InstallationDocument, facts: ClusterFacts, *, api_group: str = ""
) -> Conversion:
    """What an Installation without selection problems takes over of a static manifest. ``api_group`` is as ever."""
    pod = read_static_pod(objects)
    families = frozenset(pool.spec.prefix.family for pool in facts.pools if pool.spec.serves_workloads)
    problems: list[ConfigurationError] = list(find_pod_problems(objects, api_group))
    try:
        conflist = read_static_conflist(pod.variables)
    except ConfigurationError as error:
        return Conversion(missing={}, problems=(*problems, error))
    problems += find_conflist_problems(conflist, api_group, families)
    found = _with_pod(read_conflist_settings(conflist), pod)
    problems += _mtu_problems(found, pod)
    problems += _detection_problems(pod)
    document_of_manifest = _document(found)
    resolved = resolve(document_of_manifest, facts)
    problems += _contradictions(document, resolved, resolve(overlaid(document_of_manifest, document), facts))
    found = evolve(found, network=evolve(found.network, pools=_pools(facts, resolved) or None))
    return Conversion(missing=_missing(found, document), problems=tuple(problems))


# --- what the pods have ----------------------------------------------------------------------------------------------


def _with_pod(spec: InstallationSpec, pod: StaticPod) -> InstallationSpec:
    """The settings of the conflist, and those of the DaemonSet. What is as the default of a new cluster is left out."""
    variables, network = pod.variables, spec.network
    backend = variables.get("NETPLUG_NETWORKING_BACKEND", "")
    cni = evolve(
        network.cni,
        bin_dir="" if pod.bin_dir == "/opt/cni/bin" else pod.bin_dir,
        conf_dir="" if pod.conf_dir == "/etc/cni/net.d" else pod.conf_dir,
        install_mode=InstallMode.NETPLUG_ONLY if variables.get("SKIP_CNI_BINARIES") else None,
    )
    rolling = RollingUpdate(max_unavailable=pod.max_unavailable, max_surge=pod.max_surge)
    resources = ContainerResources(requests=pod.requests, limits=pod.limits)
    policy = next((one for one in ImagePullPolicy if one.value == pod.pull_policy), None)
    return evolve(
        spec,
        network=evolve(
            network,
            cni=cni,
            bgp=Switch.ENABLED if backend == "bird" else Switch.DISABLED,
            ipv4_detection=_detection(variables, ""),
            ipv6_detection=_detection(variables, "6"),
        ),
        registry=pod.registry,
        image_path=pod.image_path,
        image_prefix=pod.image_prefix,
        image_pull_policy=None if policy is ImagePullPolicy.IF_NOT_PRESENT else policy,
        image_pull_secrets=tuple(ImagePullSecret(name=name) for name in pod.pull_secrets),
        node_update=None if rolling == RollingUpdate() else NodeUpdate(rolling_update=rolling),
        node_resources=resources if resources != ContainerResources() else None,
    )


def _detection(variables: Mapping[str, str], suffix: str) -> AddressDetection | None:
    method = variables.get(f"IP{suffix}_AUTODETECTION_METHOD", "")
    name, _, value = method.partition("=")
    detections = {
        "first-found": AddressDetection(is_first_found=True),
        "kubernetes-internal-ip": AddressDetection(kubernetes=KubernetesAddress.NODE_INTERNAL_IP),
        "interface": AddressDetection(interface=value),
        "skip-interface": AddressDetection(skip_interface=value),
        "can-reach": AddressDetection(can_reach=value),
        "cidr": AddressDetection(cidrs=tuple(value.split(","))),
    }
    return detections.get(name)


def _detection_problems(pod: StaticPod) -> Iterator[IncompatibleCluster]:
    for suffix in ("", "6"):
        address, method = f"IP{suffix}", f"IP{suffix}_AUTODETECTION_METHOD"
        text = pod.variables.get(address, "autodetect")
        if text not in ("autodetect", "none"):
            fix = "autodetect or none is expected: an Installation has no address of one node"
            yield IncompatibleCluster(STATIC_DAEMONSET, text, fix, f"env.{address}")
        text = pod.variables.get(method, "")
        if text and _detection(pod.variables, suffix) is None:
            fix = f"first-found, kubernetes-internal-ip, or one of {', '.join(_METHODS)} with = is expected"
            yield IncompatibleCluster(STATIC_DAEMONSET, text, fix, f"env.{method}")


def _mtu_problems(found: InstallationSpec, pod: StaticPod) -> Iterator[IncompatibleCluster]:
    """The sources of the MTU that are set have to agree; 0 is not set."""
    mtu = str(found.network.mtu or 0)
    texts = {name: pod.variables.get(name, "0") for name in _MTU_VARIABLES}
    others = {name: text for name, text in texts.items() if text not in ("0", mtu)}
    if others:
        named = ", ".join(f"{name} {text}" for name, text in others.items())
        fix = f"the conflist has mtu {mtu}; make them equal"
        yield IncompatibleCluster(STATIC_DAEMONSET, named, fix, "MTU")


# --- the Installation ------------------------------------------------------------------------------------------------


def _document(spec: InstallationSpec) -> InstallationDocument:
    return InstallationDocument(installation=Installation(metadata=Metadata(name="default"), spec=spec))


def _contradictions(
    document: InstallationDocument, before: ResolvedInstallation, after: ResolvedInstallation
) -> Iterator[IncompatibleCluster]:
    for name, path in _COMPARED.items():
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            fix = (
                f"the static manifest has {_words(old)}; set that, or leave it out, and change it after the conversion"
            )
            yield IncompatibleCluster(document.where, _words(new), fix, path)


def _words(value: object) -> str:
    """A setting for people."""
    if isinstance(value, tuple):
        return ", ".join(map(_words, value)) or "none"
    if isinstance(value, CNIFeatures | Sysctl):
        named = asdict(value, recurse=False).items()
        return ", ".join(f"{name} {_words(one)}" for name, one in named if one is not None) or "none"
    return str(getattr(value, "value", value))


def _missing(found: InstallationSpec, document: InstallationDocument) -> Json:
    """What the document does not set, whichever spelling it uses."""
    selection = select(document)
    cni = found.network.cni
    left = CNISettings(
        type="" if selection.cni.value else cni.type,
        ipam=evolve(cni.ipam, type="" if selection.ipam.value else cni.ipam.type),
        spec_version=None if selection.spec_version.value else cni.spec_version,
        bin_dir="" if selection.bin_dir.value else cni.bin_dir,
        conf_dir="" if selection.conf_dir.value else cni.conf_dir,
        install_mode=None if selection.install_mode.value else cni.install_mode,
    )
    wanted = write_spec(evolve(found, network=evolve(found.network, cni=left)))
    return _without(wanted, write_spec(document.installation.spec))


def _without(wanted: Json, present: Json) -> Json:
    """The members that are not present, at every depth of objects."""
    left: dict[str, object] = {}
    for name, value in wanted.items():
        if name not in present:
            left[name] = value
            continue
        inner = present[name]
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and (rest := _without(value, inner)):
            left[name] = rest
    return left


# --- the pools -------------------------------------------------------------------------------------------------------


def _pools(facts: ClusterFacts, resolved: ResolvedInstallation) -> tuple[InstallationPool, ...]:
    """A pool of each family, and those that have the operator's label already: otherwise they would be deleted.

    Only pools that an Installation can describe; none if one with the label is not among them.
    """
    by_name = sorted(
        facts.pools, key=lambda pool: (not pool.metadata.name.startswith("default-ipv"), pool.metadata.name)
    )
    labelled = [pool for pool in by_name if MANAGED_BY in pool.metadata.labels]
    listed = list(labelled)
    for family in Family:
        candidates = [pool for pool in by_name if pool.spec.prefix.family is family and pool.spec.serves_workloads]
        if candidates and all(pool.spec.prefix.family is not family for pool in labelled):
            listed.append(candidates[0])
    described = tuple(map(_described, listed))
    if len(described) > MAX_INSTALLATION_POOLS:
        return ()
    steps = plan_pools(_with_pools(facts, resolved, described), facts)
    kept = tuple(one for one, step in zip(described, steps, strict=False) if step.action in _FITTING)
    return kept if all(step.action is PoolAction.LEAVE for step in steps[: len(labelled)]) else ()


_FITTING: Final = (PoolAction.LEAVE, PoolAction.UPDATE)


def _with_pools(
    facts: ClusterFacts, resolved: ResolvedInstallation, pools: tuple[InstallationPool, ...]
) -> ResolvedInstallation:
    spec = InstallationSpec(
        network=evolve(InstallationSpec().network, pools=pools), cni=CNISettings(type=resolved.cni.value)
    )
    return resolve(_document(spec), facts)


def _described(pool: IPPool) -> InstallationPool:
    spec = pool.spec
    return InstallationPool(
        cidr=str(spec.prefix),
        name=pool.metadata.name,
        encapsulation=encapsulation_of(spec),
        nat_outgoing=Switch.ENABLED if spec.has_outgoing_nat else Switch.DISABLED,
        node_selector=spec.node_selector or None,
        block_size=spec.block_length,
        is_bgp_export_disabled=spec.is_bgp_export_disabled,
        is_new_allocation_disabled=spec.is_disabled,
        allowed_uses=spec.allowed_uses,
        assignment_mode=spec.assignment_mode,
    )
