"""Secrets that are planted for tests, and everything that a program could tell of them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from attrs import field, frozen

from netplug_backends.host.machine import SystemClock
from netplug_cli.wiring.backends import open_datastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import NetplugError
from netplug_core.records import Create, Get, Revision
from netplug_core.resources.ippool import IPPOOL, IPPool, ippool_key
from netplug_core.settings.model import DatastoreSettings
from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["FailingSettings", "key_lines", "output_in_process", "output_of_plugin", "output_of_tool"]

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 5.0

# The plugin as a runtime calls it, without an installed file.
_PLUGIN = "import sys; sys.argv[:] = ['netplug']; from netplug_cli.wiring.cni import main; sys.exit(main())"

# The names of a setting in the configuration of the tool and of the plugin. A setting without a name has none there.
_VARIABLES = {
    "type": "DATASTORE_TYPE",
    "etcd_endpoints": "ETCD_ENDPOINTS",
    "etcd_key_file": "ETCD_KEY_FILE",
    "etcd_cert_file": "ETCD_CERT_FILE",
    "etcd_ca_cert_file": "ETCD_CA_CERT_FILE",
    "etcd_username": "ETCD_USERNAME",
    "etcd_password": "ETCD_PASSWORD",
    "api_group": "NETPLUG_API_GROUP",
    "kubeconfig": "KUBECONFIG",
    "api_root": "K8S_API_ENDPOINT",
    "token": "K8S_API_TOKEN",
    "certificate": "K8S_CERT_FILE",
    "key": "K8S_KEY_FILE",
    "certificate_authority": "K8S_CA_FILE",
}
_KEYS = {
    "type": "datastore_type",
    "etcd_endpoints": "etcd_endpoints",
    "etcd_key_file": "etcd_key_file",
    "etcd_cert_file": "etcd_cert_file",
    "etcd_ca_cert_file": "etcd_ca_cert_file",
    "api_group": "netplug_api_group",
}
_POLICY_KEYS = {
    "token": "k8s_auth_token",
    "certificate": "k8s_client_certificate",
    "key": "k8s_client_key",
    "certificate_authority": "k8s_certificate_authority",
}
_ACCESS_KEYS = {"kubeconfig": "kubeconfig", "api_root": "k8s_api_root"}


@frozen(kw_only=True)
class FailingSettings:
    """Settings that do not work, and the secrets in them that no output may contain."""

    name: str
    settings: DatastoreSettings
    secrets: tuple[str, ...] = field(repr=False)

    def find_leaked_secrets(self, text: str) -> tuple[str, ...]:
        """The secrets that can be read in a text, as they are or as they are sent."""
        forms = ((secret, secret, quote(secret), _base64(secret)) for secret in self.secrets)
        return tuple(secret for secret, *spelled in forms if any(form in text for form in spelled))

    @property
    def changed_settings(self) -> Mapping[str, str]:
        """What the settings say beyond the defaults, as texts."""
        usual, own = DatastoreSettings(), self.settings
        pairs = {name: (getattr(own, name), getattr(usual, name)) for name in dir(own) if not name.startswith("_")}
        inner = own.kubernetes, usual.kubernetes
        pairs |= {name: tuple(getattr(side, name) for side in inner) for name in dir(inner[0]) if name[0] != "_"}
        said = {name: value for name, (value, default) in pairs.items() if value != default or name == "type"}
        return {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in said.items()}


def key_lines(pem: str) -> tuple[str, ...]:
    """What a private key must not be recognised by: the lines of its text."""
    return tuple(line for line in pem.splitlines() if line and not line.startswith("-----"))


def output_in_process(case: FailingSettings) -> tuple[list[NetplugError], str]:
    """What a read, a commit and a watch fail with, and everything that a log could show of it."""
    errors: list[NetplugError] = []
    told = [f"{case.settings!r}"]
    try:
        with open_datastore(case.settings) as store:
            for call in _store_calls(store):
                try:
                    call()
                except NetplugError as error:
                    errors.append(error)
            told += _reprs_of(store)
    except NetplugError as error:
        errors.append(error)
    for each in errors:
        told += [*traceback.format_exception(each), *_causes(each)]
    return errors, "\n".join(told)


def output_of_tool(case: FailingSettings) -> str:
    """All that ``netplugctl`` prints with these settings."""
    environ = {_VARIABLES[name]: text for name, text in case.changed_settings.items() if name in _VARIABLES}
    return _run_and_capture(("-m", "netplug_cli.wiring.ctl", "get", "pools"), environ, "")


def output_of_plugin(case: FailingSettings, folder: Path) -> str:
    """All that the plugin's STATUS prints with these settings, and its log at its longest."""
    log = folder / "cni.log"
    config: dict[str, object] = {"cniVersion": "1.1.0", "name": "net", "type": "netplug", "nodename": "node-1"}
    config |= {"ipam": {"type": "netplug-ipam"}, "log_level": "debug", "log_file_path": str(log)}
    for inner, keys in (("", _KEYS), ("policy", _POLICY_KEYS), ("kubernetes", _ACCESS_KEYS)):
        said = {keys[name]: text for name, text in case.changed_settings.items() if name in keys}
        config |= {inner: said} if inner and said else said if not inner else {}
    environ = {"CNI_COMMAND": "STATUS", "CNI_PATH": "/opt/cni/bin"}
    text = _run_and_capture(("-c", _PLUGIN), environ, json.dumps(config))
    with suppress(FileNotFoundError):
        text += log.read_text()
    return text


def _run_and_capture(arguments: tuple[str, ...], environ: Mapping[str, str], stdin: str) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    talkative = {"GRPC_VERBOSITY": "info"}
    done = subprocess.run(
        (sys.executable, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**kept, **talkative, **environ},
        check=False,
        timeout=EMERGENCY_STOP_S,
    )
    return done.stdout + done.stderr


def _store_calls(store: Datastore) -> Iterator[Callable[[], object]]:
    key = ippool_key("main")
    deadline = Deadline.after(SystemClock(), _PATIENCE_S)
    pool = IPPool.for_prefix(Prefix.parse("10.0.0.0/16"), name="main")
    yield lambda: store.read([Get(key)], deadline=deadline)
    yield lambda: store.commit([Create(key, pool)], deadline=deadline)
    yield lambda: list(store.watch({IPPOOL: Revision("1")}, deadline=deadline.capped(0.2)))


def _reprs_of(store: object) -> Iterator[str]:
    """What an object and what it is made of say of themselves."""
    seen: set[int] = set()
    waiting = [store]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or not type(found).__module__.startswith("netplug"):
            continue
        seen.add(id(found))
        yield repr(found)
        slots = (name for cls in type(found).__mro__ for name in getattr(cls, "__slots__", ()))
        names = (*getattr(found, "__dict__", {}), *slots)
        waiting += [getattr(found, name) for name in names if hasattr(found, name)]


def _causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
