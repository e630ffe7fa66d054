"""What becomes of a resource, and that every refusal is one that a person can act upon."""

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.flows.resources.outcome import (
    Effect,
    KindNotWritable,
    ResourceExists,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.resources.ippool import ippool_key


@pytest.mark.parametrize(
    "error, text",
    [
        (ResourceExists("IPPool(p)", "p", "choose another name"), "resource already exists: IPPool(p); choose another"),
        (ResourceMissing.of(ippool_key("p")), "resource does not exist: IPPool(p)"),
        (ResourceOutdated("IPPool(p)", "1", "2"), "update conflict: IPPool(p): resource version '1' is out of date"),
        (KindNotWritable("IPPool(p)", "Delete", "why"), "operation Delete is not supported on IPPool(p): why"),
    ],
)
def test_a_refusal_names_what_it_is_about(error: ConfigurationError, text: str) -> None:
    assert str(error).startswith(text)
    assert error.code == 7


def test_an_effect_is_a_word_for_a_line() -> None:
    assert [effect.value for effect in Effect] == ["created", "updated", "unchanged", "deleted", "repaired", "valid"]
