"""The settings of an Installation with nothing left open, as its status shows them: in the form of a ``spec``."""

from __future__ import annotations

from netplug_core.installation.defaults import ResolvedInstallation, ResolvedLog
from netplug_core.installation.document import write_spec
from netplug_core.installation.pool_defaults import ResolvedPool
from netplug_core.resources.installation import (
    CNISettings,
    InstallationPool,
    InstallationSpec,
    IPAMSettings,
    Logging,
    LogSettings,
    NetworkSettings,
    Switch,
)

__all__ = ["computed_spec"]


def computed_spec(resolved: ResolvedInstallation) -> dict[str, object]:
    """The settings, each at the place where a document may set it; the CNI plugin in ``cni``."""
    rolling = resolved.node_update.rolling_update
    limits = {"maxUnavailable": rolling.max_unavailable, "maxSurge": rolling.max_surge}
    update = {"type": resolved.node_update.type, "rollingUpdate": limits}
    settings = write_spec(
        InstallationSpec(
            network=_network(resolved),
            cni=CNISettings(
                type=resolved.cni.value,
                ipam=IPAMSettings(type=resolved.ipam.value),
                spec_version=resolved.spec_version,
                bin_dir=resolved.bin_dir,
                conf_dir=resolved.conf_dir,
                install_mode=resolved.install_mode,
            ),
            logging=Logging(cni=_log(resolved.log)),
            provider=resolved.provider,
            registry=resolved.registry,
            image_path=resolved.image_path,
            image_prefix=resolved.image_prefix,
            image_pull_policy=resolved.image_pull_policy,
            image_pull_secrets=resolved.image_pull_secrets,
            control_plane_replicas=resolved.control_plane_replicas,
            node_resources=resolved.node_resources,
        )
    )
    return {**settings, "nodeUpdateStrategy": update}  # the writer leaves out its defaults


def _network(resolved: ResolvedInstallation) -> NetworkSettings:
    return NetworkSettings(
        pools=tuple(map(_pool, resolved.pools)),
        policy_setup_timeout_s=resolved.policy_setup_timeout_s,
        bgp=resolved.bgp,
        mtu=resolved.mtu,
        ipv4_detection=resolved.ipv4_detection,
        ipv6_detection=resolved.ipv6_detection,
        host_ports=resolved.host_ports,
        container_ip_forwarding=resolved.container_ip_forwarding,
        linux_dataplane=resolved.dataplane,
        multi_interface_mode=resolved.multi_interface_mode,
        pod_interface_type=resolved.pod_interface_type,
        sysctls=resolved.sysctls,
        features=resolved.features,
        readiness_gates=resolved.readiness_gates,
    )


def _pool(one: ResolvedPool) -> InstallationPool:
    spec = one.pool.spec
    return InstallationPool(
        cidr=str(spec.prefix),
        name=one.pool.metadata.name,
        encapsulation=one.encapsulation,
        nat_outgoing=Switch.ENABLED if spec.has_outgoing_nat else Switch.DISABLED,
        node_selector=spec.node_selector,
        block_size=spec.block_length,
        is_bgp_export_disabled=spec.is_bgp_export_disabled,
        is_new_allocation_disabled=spec.is_disabled,
        allowed_uses=spec.allowed_uses,
        assignment_mode=spec.assignment_mode,
    )


def _log(log: ResolvedLog) -> LogSettings:
    return LogSettings(
        severity=log.severity,
        max_size=f"{log.max_size_mib}Mi",
        max_age_days=log.max_age_days,
        max_count=log.max_count,
    )
