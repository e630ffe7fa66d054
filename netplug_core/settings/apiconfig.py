"""The datastore of ``netplugctl`` and the daemons, from the environment or from the tool's own file.

If the file exists, the environment is ignored. ``keys`` has the names of every setting in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Final
from urllib.parse import parse_qsl

from attrs import field, frozen

from netplug_core.decoding.codecs import (
    BOOLEAN,
    STRING,
    STRING_MAP,
    Codec,
    JSONType,
    Refused,
    Unreadable,
    WrongType,
    checked_equal,
)
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Field,
    Table,
    UnknownKeys,
    document_error,
    path_in_document,
)
from netplug_core.errors import REDACTED, ConfigurationError, NetplugError, narrow
from netplug_core.names import API_VERSION
from netplug_core.settings.model import (
    ANNOTATION_PREFIX,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    LOCATION_VARIABLES,
    MAX_REQUEST_RATE,
    DatastoreSettings,
    KubernetesAccess,
    Setting,
    SettingType,
    settings_tables,
    with_endpoints,
)

__all__ = ["API_CONFIG_KIND", "datastore_settings_from_environment", "datastore_settings_from_file", "has_datastore"]

API_CONFIG_KIND = "NetplugAPIConfig"

_OWN_PREFIX = "NETPLUG_"  # of a variable that has another text for netplug than for other programs
_PREFIXES = (_OWN_PREFIX, "")


def datastore_settings_from_environment(environ: Mapping[str, str]) -> DatastoreSettings:
    """The datastore that ``DATASTORE_TYPE``, ``SQLITE_PATH``, ``ETCD_ENDPOINTS``, … and ``KUBECONFIG`` name.

    Raises:
        ConfigurationError: endpoints are given twice, a number or a flag cannot be read, or a text is not UTF-8.
    """
    variables = {name: text for name, text in environ.items() if text}
    tables = settings_tables(_variable_field, partial(_finish_tool, key_prefix="environment."))
    return Decoder(_environment_error, tables=tables).decode(variables, DatastoreSettings, "environment")


def has_datastore(environ: Mapping[str, str]) -> bool:
    """Whether the environment says which datastore, or where it is; otherwise its settings are all defaults."""
    return any(environ.get(f"{prefix}{name}") for name in LOCATION_VARIABLES for prefix in _PREFIXES)


def datastore_settings_from_file(mapping: Mapping[str, object], *, source: str) -> DatastoreSettings:
    """The datastore that a NetplugAPIConfig names; ``source`` is the name of the file.

    Raises:
        ConfigurationError: it is of another kind, or has a key that is unknown or of the wrong type; the error names
            file and key and shows no secret. Or endpoints are given twice, or a text is not UTF-8.
    """
    return _file_decoder().decode(mapping, _ConfigFile, source).spec


@frozen(kw_only=True)
class _ConfigFile:
    """The tool's file. Errors do not show the ``spec``: it may be a password that is indented wrongly."""

    kind: str
    api_version: str
    spec: DatastoreSettings = field(factory=DatastoreSettings, repr=False)


@cache
def _file_decoder() -> Decoder:
    fields = {
        "kind": Field("kind", checked_equal(API_CONFIG_KIND)),
        "api_version": Field("apiVersion", checked_equal(API_VERSION)),
        "spec": Field("spec", DatastoreSettings),
    }
    # Every object has metadata; here it means nothing.
    table = Table(cls=_ConfigFile, fields=fields, ignored=("metadata",))
    return Decoder(_file_error, DocumentOrigin.USER, tables=(table, *settings_tables(_file_field, _finish_tool)))


def _environment_error(refused: Refused, where: str) -> NetplugError:
    return _not_accepted(refused, f"{where}{refused.path}")


def _file_error(refused: Refused, source: str) -> NetplugError:
    if isinstance(refused, WrongType):
        if refused.expected is JSONType.UTF8:
            return _not_accepted(refused, path_in_document(source, refused.path))
        if refused.expected is JSONType.STRING and refused.value == REDACTED:
            refused.accepted = "a text in quotes"  # a password of digits, without quotes, is a number in YAML
    if isinstance(refused, WrongType | Unreadable | UnknownKeys):
        return document_error(refused, source)
    return _not_accepted(refused, path_in_document(source, refused.path))


def _not_accepted(refused: Refused, where: str) -> ConfigurationError:
    if isinstance(refused, WrongType):
        return ConfigurationError(where, REDACTED, "a text in UTF-8 without NUL is expected")
    return ConfigurationError(where, refused.value, refused.accepted)


# --- codecs and tables ----------------------------------------------------------------------------------------------

_NUMBER: Final = f"a whole number from 0 to {MAX_REQUEST_RATE}"
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_MAX_SHOWN_LENGTH = 64  # characters of what should be a number


def _read_rate(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_REQUEST_RATE:
        raise ValueError(_NUMBER)
    return value


def _read_rate_text(value: object) -> int:
    text = STRING.decode(value)
    # Python refuses to convert thousands of digits. One digit more than the limit has is enough to see that.
    digits = text.lstrip("0")[: len(str(MAX_REQUEST_RATE)) + 1] or "0"
    if not (text.isascii() and text.isdigit() and int(digits) <= MAX_REQUEST_RATE):
        shown = text if len(text) < _MAX_SHOWN_LENGTH else REDACTED
        raise Refused(f"{_NUMBER} is expected", value=shown)
    return int(digits)


def _read_flag_text(value: object) -> bool:
    text = STRING.decode(value).lower()
    if text not in _FLAGS:
        raise Refused("true or false is expected")
    return _FLAGS[text]


def _read_options_text(value: object) -> object:
    """Options as the query of a URL has them: ``name=value&name=value``, percent-encoded."""
    try:
        pairs = parse_qsl(STRING.decode(value), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise Refused("name=value&name=value is expected, as in the query of a URL") from None
    return STRING_MAP.decode(dict(pairs))


_FILE_CODECS: Final = {
    SettingType.TEXT: STRING,
    SettingType.FLAG: BOOLEAN,
    SettingType.REQUEST_RATE: Codec(_read_rate),
    SettingType.ANNOTATION_PREFIX: ANNOTATION_PREFIX,
    SettingType.OPTIONS: STRING_MAP,
}


_VARIABLE_CODECS: Final = {
    **_FILE_CODECS,
    SettingType.FLAG: Codec(_read_flag_text),
    SettingType.REQUEST_RATE: Codec(_read_rate_text),
    SettingType.OPTIONS: Codec(_read_options_text),
}


def _file_field(setting: Setting) -> Field | None:
    codec = _FILE_CODECS[setting.type]
    return Field(setting.file, codec, is_unset_if_empty=True) if setting.file else None


def _variable_field(setting: Setting) -> Field | None:
    if not setting.variable:
        return None
    codec = _VARIABLE_CODECS[setting.type]
    return Field(f"{_OWN_PREFIX}{setting.variable}", codec, alternatives=(Field(setting.variable, codec),))


def _finish_tool(values: dict[str, object], keys: Mapping[str, str], *, key_prefix: str = "") -> dict[str, object]:
    datastore = values.setdefault("type", _guess_datastore(values))
    if values.get("etcd_endpoints") and datastore != ETCD_DATASTORE:
        values.pop("etcd_discovery_srv", None)
    return with_endpoints(values, keys, key_prefix=key_prefix)


def _guess_datastore(values: Mapping[str, object]) -> str:
    """The datastore that the other settings are about; etcd if there are none."""
    is_about_etcd = any(map(values.get, ("etcd_endpoints", "etcd_discovery_srv", "etcd_scheme", "etcd_authority")))
    access = narrow(values["kubernetes"], KubernetesAccess)
    is_about_kubernetes = bool(access.kubeconfig or access.kubeconfig_inline or access.api_root)
    return KUBERNETES_DATASTORE if is_about_kubernetes and not is_about_etcd else ETCD_DATASTORE
