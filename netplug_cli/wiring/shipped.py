"""The objects of this release that depend on no setting, for the operator and for its manifest."""

from __future__ import annotations

from netplug_backends.kubernetes.installing.manifests import (
    definitions,
    node_role,
    operator_definitions,
    plugin_role,
    protection_objects,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.operator.state import ClusterMode, Shipped

__all__ = ["shipped_objects"]


def shipped_objects() -> Shipped:
    """Accounts with their rights, definitions, and what keeps these."""
    return Shipped(
        node_accounts=node_role(),
        plugin_accounts=plugin_role(),
        definitions={mode: dict(definitions(CrdMode[mode.name])) for mode in ClusterMode},
        operator_definitions=tuple(definition for _, definition in operator_definitions()),
        protection=tuple(protection_objects()),
    )
