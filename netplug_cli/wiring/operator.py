"""Composition root of the operator: the console script ``netplug-operator`` calls ``main``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.loopback import CannotListen, listen_to_this_machine
from netplug_cli.operator.arguments import OperatorArguments, parse_arguments
from netplug_core import __version__
from netplug_core.errors import ConfigurationError
from netplug_core.installation.daemonset import SYSTEM_NAMESPACE
from netplug_core.names import API_VERSION
from netplug_core.operator.state import ClusterMode, OperatorSettings

__all__ = ["main", "run"]

_LIBRARIES = ("prometheus_client",)
_MODES = {"": None, API_VERSION: ClusterMode.V3, CrdMode.V1.value: ClusterMode.V1}


def main() -> None:
    """Run ``netplug-operator``."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Keep the cluster as its Installation says until a signal comes; return the exit status of the process."""
    options = parse_arguments(arguments)
    missing = next((library for library in _LIBRARIES if find_spec(library) is None), None)
    if missing is not None:
        sys.stderr.write(f"netplug-operator needs netplug[operator]: not installed here: {missing}\n")
        return 1
    try:
        settings = _settings(options, environ)
        listening = listen_to_this_machine(options.health_port)
    except (ConfigurationError, CannotListen) as error:
        sys.stderr.write(f"netplug-operator: {error}\n")
        return 2 if isinstance(error, ConfigurationError) else 1
    from netplug_cli.wiring.operator_process import serve  # heavy, and installed only with the operator

    return serve(listening, settings, environ)


def _settings(options: OperatorArguments, environ: Mapping[str, str]) -> OperatorSettings:
    group = environ.get("NETPLUG_API_GROUP", "")
    if group not in _MODES:
        raise ConfigurationError("NETPLUG_API_GROUP", group, " or ".join(filter(None, _MODES)))
    if environ.get("NAMESPACE") == SYSTEM_NAMESPACE:
        accepted = "the operator deletes this namespace with an Installation; run it in another one"
        raise ConfigurationError("NAMESPACE", SYSTEM_NAMESPACE, accepted)
    return OperatorSettings(
        version=__version__, manages_definitions=options.manages_definitions, asked_mode=_MODES[group]
    )


if __name__ == "__main__":
    main()
