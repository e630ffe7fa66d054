"""The charts, helm, and what it makes of them, as objects by their names."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import yaml

import netplug_cli
from netplug_backends.kubernetes.installing.manifests import shipped_objects
from netplug_core import __version__
from netplug_core.installation.components import ComponentKind
from netplug_core.operator.deployment import default_image, render_operator
from netplug_core.operator.state import ObjectRef, ref_of

__all__ = [
    "CHARTS", "COMPONENTS", "DEFAULT_OUTPUT", "OPERATOR", "Helm", "HelmRefused", "by_name", "operator_objects",
    "read_objects",
]  # fmt: skip

Object: TypeAlias = Mapping[str, object]
Objects: TypeAlias = dict[ObjectRef, Object]

CHARTS = Path(netplug_cli.__file__).parent / "manifests" / "charts"
OPERATOR = CHARTS / "netplug-operator"
DEFAULT_OUTPUT = Path(__file__).parents[1] / "charts" / "netplug-operator.yaml"
"""What helm made of the chart of the operator without values, in the namespace of the manifest."""

_GROUP = "operator.projectnetplug.org/v1"
COMPONENTS: Objects = {
    ObjectRef(_GROUP, kind, "default"): {
        "apiVersion": _GROUP,
        "kind": kind,
        "metadata": {"name": "default"},
        "spec": {},
    }
    for kind in ("Installation", *(kind.value for kind in ComponentKind))
}
"""The four resources that the chart of the operator creates without values."""


class HelmRefused(Exception):
    """Helm has failed; the text is what it wrote to standard error."""


class Helm:
    """Calls a helm, which reaches no cluster unless a kubeconfig leads to one."""

    def __init__(self, program: str, folder: Path, kubeconfig: str = "") -> None:
        self._program = program
        self._environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "KUBECONFIG": kubeconfig or str(folder / "none")}

    def run(self, *arguments: str) -> str:
        """What it writes to standard output."""
        command = [self._program, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environ)
        if ran.returncode:
            raise HelmRefused(ran.stderr)
        return ran.stdout

    def template(self, chart: Path, *options: str) -> Objects:
        """The objects of a chart in the namespace of the operator, but for those of hooks."""
        return by_name(read_objects(self.template_text(chart, "--no-hooks", *options)))

    def template_text(self, chart: Path, *options: str) -> str:
        """What helm prints of a chart."""
        return self.run("template", "netplug", str(chart), "--namespace", "netplug-operator", *options)


def read_objects(text: str) -> list[Object]:
    """The objects of YAML documents; a document with comments alone is none."""
    return [found for found in yaml.safe_load_all(text) if found is not None]


def by_name(objects: Iterable[Object]) -> Objects:
    """Objects by their names, of which no two have the same."""
    listed = list(objects)
    found = {ref_of(one): one for one in listed}
    assert len(found) == len(listed)
    return found


def operator_objects(*, manages_definitions: bool = True) -> Objects:
    """The objects of the published manifest without its Namespace, which helm makes itself."""
    image = default_image(__version__)
    objects = render_operator(shipped_objects(), image=image, manages_definitions=manages_definitions)
    return by_name(one for one in objects if one["kind"] != "Namespace")
