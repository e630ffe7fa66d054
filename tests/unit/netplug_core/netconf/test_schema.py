"""The JSON Schema of the network configuration agrees with the loader on a corpus of right and wrong ones.

The corpus is ``tests/netconfs``: ``right``, ``wrong`` with the error of the loader, and ``beyond_schema``, what only
the loader can know.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from netplug_core.netconf.schema import CONFIGURATION_FILE, DESCRIPTIONS, configuration_schema, list_schema
from tests.harness.netconf_loader import find_refusal, schema_problems

CORPUS = Path(__file__).parents[3] / "netconfs"
SCHEMA = Draft202012Validator(configuration_schema())
LISTS = Draft202012Validator(
    list_schema(),
    registry=Registry().with_resource(CONFIGURATION_FILE, Resource.from_contents(configuration_schema())),
)


def cases(folder: str) -> list[object]:
    found = sorted((CORPUS / folder).glob("*.json"))
    assert found
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in found]


def as_list_member(config: Mapping[str, object]) -> dict[str, object]:
    """A list with the configuration in it, as people write it."""
    own = {key: value for key, value in config.items() if key not in ("name", "cniVersion")}
    head = {key: config[key] for key in ("name", "cniVersion") if key in config}
    return {**head, "plugins": [own, {"type": "portmap", "capabilities": {"portMappings": True}}]}


@pytest.mark.parametrize("config", cases("right"))
def test_what_is_right(config: dict[str, object]) -> None:
    assert find_refusal(config) is None
    assert schema_problems(SCHEMA, config) == []
    assert schema_problems(LISTS, as_list_member(config)) == []


@pytest.mark.parametrize("case", cases("wrong"))
def test_what_is_wrong(case: dict[str, object]) -> None:
    error = find_refusal(case["configuration"])
    assert error is not None
    assert f"{error.code} {error}" == case["error"]
    assert schema_problems(SCHEMA, case["configuration"])


@pytest.mark.parametrize("case", cases("beyond_schema"))
def test_what_only_the_loader_knows(case: dict[str, object]) -> None:
    error = find_refusal(case["configuration"])
    assert error is not None
    assert f"{error.code} {error}" == case["error"]
    assert schema_problems(SCHEMA, case["configuration"]) == []


@pytest.mark.parametrize("schema", [configuration_schema(), list_schema()])
def test_the_schemas_are_valid(schema: dict[str, object]) -> None:
    Draft202012Validator.check_schema(schema)


def test_in_a_list_other_plugins_are_not_judged_and_ours_is() -> None:
    ours = {"type": "netplug", "ipam": {"type": "netplug-ipam"}}
    assert LISTS.is_valid({"name": "a", "plugins": [{"type": "bridge", "mtu": "large"}, ours]})
    assert not LISTS.is_valid({"name": "a", "plugins": [{**ours, "mtu": "large"}]})
    assert not LISTS.is_valid({"name": "a", "plugins": []})
    assert not LISTS.is_valid({"name": "a b", "plugins": [ours]})


def described(schema: Mapping[str, object], path: str = "") -> Iterator[tuple[str, bool]]:
    """Every key that the schema names, and whether it has a description."""
    properties = schema.get("properties", {})
    assert isinstance(properties, dict)
    for name, member in properties.items():
        yield f"{path}{name}", "description" in member
        yield from described(member, f"{path}{name}.")


def test_every_key_has_a_description_and_every_description_a_key() -> None:
    whole = configuration_schema()
    definitions = whole["$defs"]
    assert isinstance(definitions, dict)
    found = {**dict(described(whole)), **dict(described(definitions["plugin"]))}
    assert [key for key, has_text in found.items() if not has_text] == []
    assert set(DESCRIPTIONS) - set(found) == {"plugins"}
