"""The manifests that come with the package, and objects as the text of one.

The commands of an installation read them, and ``tools.manifests`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files as package_files
from typing import cast

import yaml

__all__ = [
    "ADMISSION_MANIFEST", "CRD_BUNDLES", "OPERATOR_MANIFEST", "PROTECTION_MANIFEST", "STATIC_FOLDER", "read_shipped",
    "render_manifest",
]  # fmt: skip

STATIC_FOLDER = "static"
CRD_BUNDLES = {mode: f"{STATIC_FOLDER}/crds-{mode}.yaml" for mode in ("v1", "v3")}
"""The files with all definitions for a cluster, by the version of its CRDs."""

ADMISSION_MANIFEST = f"{STATIC_FOLDER}/admission-v3.yaml"
"""The file with the admission policies for the definitions of v3."""

PROTECTION_MANIFEST = f"{STATIC_FOLDER}/deletion-policy.yaml"
"""The file with the admission policy that refuses to delete definitions."""

OPERATOR_MANIFEST = f"{STATIC_FOLDER}/operator.yaml"
"""The file with the operator: its namespace, account, rights and Deployment."""


class _Dumper(yaml.SafeDumper):
    """Prints no value as a reference to an earlier one."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature of PyYAML
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """A text of several lines, such as a template, stays readable."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def read_shipped(name: str) -> list[Mapping[str, object]]:
    """The objects of a manifest of the package, by its path in the folder of manifests."""
    text = package_files("netplug_cli").joinpath("manifests", name).read_text(encoding="utf-8")
    return [cast("Mapping[str, object]", found) for found in yaml.safe_load_all(text)]


def render_manifest(objects: Iterable[object]) -> str:
    """YAML documents, each after a line with ``---``; members are in their own order."""
    return str(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120, explicit_start=True))
