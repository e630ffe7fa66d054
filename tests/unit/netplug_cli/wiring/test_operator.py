"""What the operator refuses before it starts, and its command line."""

from __future__ import annotations

import pytest

from netplug_cli.operator.process import parse_arguments
from netplug_cli.wiring.operator import run


@pytest.mark.parametrize(
    "variable, value, text",
    [
        ("NETPLUG_API_GROUP", "v4", "NETPLUG_API_GROUP: 'v4' is not accepted; "),
        ("NAMESPACE", "netplug-system", "NAMESPACE: 'netplug-system' is not accepted; "),
    ],
)
def test_a_wrong_environment_is_refused(
    variable: str, value: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([], {variable: value}) == 2
    assert capsys.readouterr().err.startswith(f"netplug-operator: {text}")


def test_the_command_line() -> None:
    found = parse_arguments(["--manage-crds=false", "--health-port=8"])
    assert (found.manages_definitions, found.health_port) == (False, 8)
    assert parse_arguments([]).manages_definitions
    for wrong in ("--health-port=0", "--manage-crds=maybe"):
        with pytest.raises(SystemExit) as ended:
            parse_arguments([wrong])
        assert ended.value.code == 2
