"""Composition root of ``netplugctl lab`` and ``connectivity``: the only module in which the lab and the tool meet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from random import random
from typing import TYPE_CHECKING

import click

from netplug_backends.host.machine import SystemClock
from netplug_cli.ctl.documents import render_yaml
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import Cell, Column, Report, ReportFormat, usage_lines
from netplug_cli.lab.commands import make_connectivity_group, make_group
from netplug_cli.lab.report import make_progress
from netplug_cli.lab.world import LabWorld, Table
from netplug_cli.node_status import NodeStatus
from netplug_cli.wiring.backends import open_registry
from netplug_core.clock import Deadline
from netplug_core.dataplane.connectivity import ClusterPods
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.protocol import IPAM
from netplug_core.settings.model import DatastoreSettings

if TYPE_CHECKING:
    from netplug_backends.kubernetes.lab import LabCluster

__all__ = ["connectivity", "lab", "server_addresses"]


def server_addresses(settings: DatastoreSettings) -> tuple[tuple[str, int], ...]:
    """Host and port of each server of etcd or Kubernetes that settings name.

    Raises:
        ConfigurationError: they name none.
    """
    if settings.is_kubernetes:
        from netplug_backends.kubernetes.lab import get_api_address

        return (get_api_address(settings.kubernetes),)
    from netplug_core.settings.model import parse_endpoints

    return tuple((member.host, member.port) for member in parse_endpoints(settings.etcd_endpoints))


def _make_world(context: click.Context) -> LabWorld:
    from netplug_backends.linux.pinned_namespaces import PinnedNamespaces

    session = session_of(context)
    return LabWorld(
        namespaces=PinnedNamespaces(),
        install=lambda folder, report: session.install_executables(folder, "python", report),
        node_command=(sys.executable, "-m", "netplug_cli.wiring.node"),
        session=session,
        open_ipam=_open_ipam,
        open_cluster=_open_cluster,
        open_pods=_open_pods,
        server_addresses=server_addresses,
        ask_node=_ask_node,
        usage_lines=_usage_lines,
        render_yaml=render_yaml,
        render_table=_render_table,
        progress=make_progress(sys.stdout.isatty()),
    )


def _open_ipam(store: Datastore) -> AbstractContextManager[IPAM]:
    context = IPAMContext(datastore=store, clock=SystemClock(), chance=random)
    return open_registry().open_ipam("netplug-ipam", context)


def _open_cluster(settings: DatastoreSettings, lab_uid: str) -> AbstractContextManager[LabCluster]:
    from netplug_backends.kubernetes.lab import open_cluster

    return open_cluster(settings, lab_uid, clock=SystemClock())


def _open_pods(settings: DatastoreSettings) -> AbstractContextManager[ClusterPods]:
    from netplug_backends.kubernetes.lab import open_pods

    return open_pods(settings, os.environ, clock=SystemClock())


def _usage_lines(store: Datastore, deadline: Deadline) -> Iterable[str]:
    return usage_lines(read_utilization(store, deadline=deadline), shows_blocks=True)


def _ask_node(path: str) -> NodeStatus:
    from netplug_cli.ctl.commands.node import ask_node

    return ask_node(path)


def _render_table(table: Table, output: str) -> str:
    columns = tuple(Column(member.upper(), member) for member in table.members)
    rows = tuple(tuple(Cell(value, str(value)) for value in row) for row in table.rows)
    return Report(columns, rows, name=table.name, facts=table.facts, shown=()).render(ReportFormat(output))


connectivity = make_connectivity_group(_make_world)
lab = make_group(_make_world)
"""The command groups, under the names that the table of ``netplugctl``'s commands has."""
