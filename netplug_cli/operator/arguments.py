"""The command line of the operator."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attrs import frozen

from netplug_core.operator.deployment import HEALTH_PORT

__all__ = ["OperatorArguments", "parse_arguments"]

_MAX_PORT = 65_535


@frozen(kw_only=True)
class OperatorArguments:
    """``manages_definitions``: the CRDs are applied at the start and kept. ``health_port`` is one of 127.0.0.1."""

    manages_definitions: bool
    health_port: int


def parse_arguments(arguments: Sequence[str]) -> OperatorArguments:
    """The arguments; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser(
        prog="netplug-operator", description="Keep the cluster as its Installation named default says."
    )
    parser.add_argument(
        "--manage-crds",
        choices=("true", "false"),
        default="true",
        help="apply the custom resource definitions, and keep them as they are (default: %(default)s)",
    )
    parser.add_argument(
        "--health-port",
        type=_port,
        default=HEALTH_PORT,
        metavar="N",
        help="serve /livez, /readyz and /metrics at this port of 127.0.0.1 (default: %(default)s)",
    )
    found = parser.parse_args(arguments)
    return OperatorArguments(manages_definitions=found.manage_crds == "true", health_port=found.health_port)


def _port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a number from 1 to {_MAX_PORT} is")
    return number
