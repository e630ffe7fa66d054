"""The shipped manifests match the tables, and grant no more than the plugin needs."""

from pathlib import Path

import pytest
import yaml

import netplug_cli
from netplug_backends.kubernetes.kinds.schemas import SCHEMAS
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.manifests import definitions, node_role, operator_definitions, plugin_role
from netplug_backends.kubernetes.names import CrdMode

MANIFESTS = Path(netplug_cli.__file__).parent / "manifests"


@pytest.mark.parametrize("mode", CrdMode)
def test_the_shipped_definitions_match_the_tables(mode: CrdMode) -> None:
    """``make manifests`` writes them."""
    folder = MANIFESTS / "crds" / mode.name.lower()
    wanted = dict(definitions(mode))
    assert sorted(path.stem for path in folder.iterdir()) == sorted(wanted)
    for plural, definition in wanted.items():
        assert yaml.safe_load((folder / f"{plural}.yaml").read_text()) == definition


def test_the_shipped_roles_match_the_tables() -> None:
    for name, role in (("cni-plugin", plugin_role()), ("node", node_role())):
        assert list(yaml.safe_load_all((MANIFESTS / "rbac" / f"{name}.yaml").read_text())) == list(role)


def test_the_node_process_has_one_right() -> None:
    _, role, _ = node_role()
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "verbs": ["create"],
            "resourceNames": ["netplug-cni-plugin"],
        }
    ]


def test_every_stored_kind_has_a_schema() -> None:
    assert sorted(SCHEMAS) == sorted(KIND_MAPPINGS)


def test_rights_that_the_plugin_never_gets() -> None:
    """The specification needs pods to be read (4, 5); the endpoint is stored in their status."""
    _, role, _ = plugin_role()
    rules = role["rules"]
    assert isinstance(rules, list)
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert not any(resource == "secrets" for resource, _ in granted)
    assert {verb for resource, verb in granted if resource == "pods"} == {"get", "list"}
    assert {verb for resource, verb in granted if resource == "nodes"} == {"get"}
    assert {verb for resource, verb in granted if resource == "pods/status"} == {"patch"}


def test_the_shipped_definitions_of_the_operator_match_the_tables() -> None:
    folder = MANIFESTS / "crds" / "operator"
    shipped = {path.stem: yaml.safe_load(path.read_text()) for path in folder.iterdir()}
    assert shipped == dict(operator_definitions())
