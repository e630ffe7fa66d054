"""Laws of the published schema.

1. A configuration without mistakes is accepted by the loader and by the schema.
2. Whatever the configuration is, they agree.

Beyond them is only what a JSON Schema cannot say: that 1.0 is no integer, what a CIDR means, and that the older name of
a key is not read beside the newer one.
"""

import json

from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from netplug_core.netconf.schema import configuration_schema
from tests.harness.netconf_loader import find_refusal, schema_problems
from tests.harness.netconfs import JUNK, anything, configurations, right_configurations

SCHEMA = Draft202012Validator(configuration_schema())


def has_whole_float(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


def has_unread_name(config: dict[str, object]) -> bool:
    return config.get("cni.dev/valid-attachments") is not None and "cni.dev/attachments" in config


@given(right_configurations())
def test_what_is_right_is_accepted_by_both(config: dict[str, object]) -> None:
    assert find_refusal(config) is None
    assert schema_problems(SCHEMA, config) == []


@given(
    anything() | configurations(),
    st.sampled_from(("net1", "a b", "", "net1\n", "-x")) | JUNK,
    st.sampled_from(("1.0.0", "9.9.9", "", "0.1.0\n", None)),
)
def test_loader_and_schema_agree(config: dict[str, object], name: object, version: str | None) -> None:
    config = {**config, "name": name, "cniVersion": version}
    assume(not has_whole_float(config) and not has_unread_name(config))
    config = json.loads(json.dumps(config))
    assert (find_refusal(config) is None) is (schema_problems(SCHEMA, config) == []), (
        find_refusal(config),
        schema_problems(SCHEMA, config),
    )
