"""The datastore of ``netplugctl``, daemons and programs: from the environment, the tool's own file, or one URL.

If the file exists, the environment is ignored. ``model`` has the names of every setting in both.

The scheme of a URL names the backend. Four schemes have a form of their own; the URL of any other backend is taken
apart into ``options`` for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from attrs import field, frozen

from netplug_core.addressing import without_ipv4_brackets
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
from netplug_core.errors import REDACTED, ConfigurationError, NetplugError, narrow, quote
from netplug_core.names import API_VERSION
from netplug_core.settings.model import (
    ANNOTATION_PREFIX,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    LOCATION_VARIABLES,
    MAX_REQUEST_RATE,
    MEMORY_DATASTORE,
    SQLITE_DATASTORE,
    DatastoreSettings,
    KubernetesAccess,
    Setting,
    SettingType,
    settings_tables,
    with_endpoints,
)

__all__ = [
    "API_CONFIG_KIND", "InvalidURL", "datastore_settings_from_environment", "datastore_settings_from_file",
    "datastore_settings_from_url", "has_datastore", "redact_url",
]  # fmt: skip


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


# --- one URL ---------------------------------------------------------------------------------------------------------

_ACCEPTED = (
    "accepted are memory:, sqlite:///FILE, etcd://HOST:PORT, kubernetes:, and NAME:… for a backend that is installed "
    "under that name"
)
_TLS_FILES = ("ca_cert_file", "cert_file", "key_file")
# RFC 3986, appendix B. urlsplit knows one host only: its releases since 2024 refuse brackets behind a comma.
_FORM = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<netloc>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_URL_FLAGS = {"true": True, "false": False}


@frozen
class InvalidURL(ConfigurationError):
    """A text that is no URL of a datastore; ``value`` is the URL without its secrets, ``problem`` what is wrong."""

    problem: str

    @classmethod
    def of(cls, url: str, problem: str, accepted: str = _ACCEPTED) -> InvalidURL:
        """The error about a URL that may hold a password."""
        return cls("url", redact_url(url), accepted, problem)

    def __str__(self) -> str:
        return f"{self.where}: {quote(self.value)} is not accepted: {self.problem}; {self.accepted}"


def redact_url(url: str) -> str:
    """A URL as it may be shown: without user, password, query and fragment.

    A password may have a reserved character in it that should have been percent-encoded. Then only the scheme is shown.
    """
    location, mark, rest = _split_location(url)
    if "@" in rest:
        return f"{location.partition(':')[0]}:{REDACTED}"
    if "@" in location:
        location = f"{location.partition(':')[0]}://{REDACTED}@{location.rpartition('@')[2]}"
    return f"{location}{mark}{REDACTED if rest else ''}"


def _split_location(url: str) -> tuple[str, str, str]:
    """A URL in two parts, before and behind the first ``?`` or ``#``, with that character between them."""
    end = min((position for position in map(url.find, "?#") if position >= 0), default=len(url))
    return url[:end], url[end : end + 1], url[end + 1 :]


def datastore_settings_from_url(url: str) -> DatastoreSettings:
    """The datastore that a URL names.

    ``memory:``; ``sqlite:///absolute/path`` or ``sqlite:relative/path``; ``etcd://user:password@host:2379,host2:2379``
    with ``?tls=true``, ``ca_cert_file``, ``cert_file``, ``key_file`` or ``discovery_srv``; ``kubernetes:`` or
    ``kubernetes:///path/of/kubeconfig`` with ``?context`` or ``api_group``. Any other scheme is the name of a backend,
    whose ``options`` are the parts of the URL (``user``, ``password``, ``host``, ``port``, ``path``) and the query.
    Text in the parts and in the query may be percent-encoded.

    Raises:
        InvalidURL: it is not such a URL. The error shows no secret.
    """
    parts = _split(url)
    return _PARSERS.get(parts.scheme, _parse_foreign)(_DatastoreURL(url, parts, _query(url, parts)))


@frozen
class _DatastoreURL:
    text: str
    parts: SplitResult
    query: Mapping[str, str]

    def error(self, problem: str, accepted: str = _ACCEPTED) -> InvalidURL:
        return InvalidURL.of(self.text, problem, accepted)

    @property
    def path(self) -> str:
        return self._decoded(self.parts.path)

    @property
    def hosts(self) -> str:
        """The hosts with their ports: what stands behind the user."""
        return self.parts.netloc.rpartition("@")[2]

    @property
    def credentials(self) -> tuple[str, str]:
        """User and password; empty where there are none."""
        user, _, password = self.parts.netloc.rpartition("@")[0].partition(":")
        return self._decoded(user), self._decoded(password)

    def _decoded(self, part: str) -> str:
        text = unquote(part)
        if _CONTROL.search(text):
            raise self.error("a control character is percent-encoded in it")
        return text

    def refuse_unknown_options(self, known: Collection[str], accepted: str) -> None:
        for name in self.query:
            if name not in known:
                raise self.error(f"unknown option {quote(name)}", accepted)

    def refuse_host(self, accepted: str) -> None:
        if self.parts.netloc:
            raise self.error("it names a host", accepted)

    def refuse_path(self, accepted: str) -> None:
        if self.parts.path not in ("", "/"):
            raise self.error("it names a path", accepted)


def _split(url: str) -> SplitResult:
    if not url.isprintable() or " " in url:
        raise InvalidURL.of(url, "it has a blank or an unprintable character")
    if "@" in _split_location(url)[2]:
        raise InvalidURL.of(url, "it has an @ behind a ? or #; write the ones of a password as %3F, %23 and %40")
    found = narrow(_FORM.fullmatch(url), re.Match)  # each text has the form
    parts = SplitResult(**found.groupdict(default=""))
    parts = parts._replace(scheme=parts.scheme.lower(), netloc=without_ipv4_brackets(f"//{parts.netloc}")[2:])
    if not parts.scheme:
        raise InvalidURL.of(url, "it does not begin with the name of a datastore and a colon")
    if parts.fragment:
        raise InvalidURL.of(url, "it has a fragment; write # as %23")
    return parts


def _query(url: str, parts: SplitResult) -> Mapping[str, str]:
    query: dict[str, str] = {}
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidURL.of(url, "its query is not a list of name=value") from None
    for name, value in pairs:
        if _CONTROL.search(name + value):
            raise InvalidURL.of(url, "a control character is percent-encoded in its query")
        if name in query:
            raise InvalidURL.of(url, f"the option {quote(name)} is given twice")
        query[name] = value
    return query


def _parse_memory(url: _DatastoreURL) -> DatastoreSettings:
    accepted = "memory: is accepted, and nothing behind it"
    url.refuse_host(accepted)
    url.refuse_path(accepted)
    url.refuse_unknown_options((), accepted)
    return DatastoreSettings(type=MEMORY_DATASTORE)


def _parse_sqlite(url: _DatastoreURL) -> DatastoreSettings:
    accepted = "sqlite:///absolute/path and sqlite:relative/path are accepted"
    url.refuse_host(accepted)
    url.refuse_unknown_options((), accepted)
    if url.path in ("", "/"):
        raise url.error("it names no file", accepted)
    return DatastoreSettings(type=SQLITE_DATASTORE, sqlite_path=url.path)


def _parse_etcd(url: _DatastoreURL) -> DatastoreSettings:
    options = ("tls", "discovery_srv", *_TLS_FILES)
    accepted = f"etcd://HOST:PORT is accepted, more hosts after commas, and the options {', '.join(options)}"
    url.refuse_path(accepted)
    url.refuse_unknown_options(options, accepted)
    srv = url.query.get("discovery_srv", "")
    if bool(url.hosts) == bool(srv):
        problem = "it names hosts and discovery_srv" if srv else "it names no host"
        raise url.error(problem, accepted)
    flag = url.query.get("tls", "true" if any(name in url.query for name in _TLS_FILES) else "false")
    if flag not in _URL_FLAGS:
        raise url.error("tls is neither true nor false", accepted)
    scheme = "https" if _URL_FLAGS[flag] else "http"
    user, password = url.credentials
    return DatastoreSettings(
        type=ETCD_DATASTORE,
        etcd_endpoints=tuple(f"{scheme}://{host}" for host in _hosts(url, accepted)),
        etcd_endpoints_source="url",
        etcd_discovery_srv=srv,
        etcd_ca_cert_file=url.query.get("ca_cert_file", ""),
        etcd_cert_file=url.query.get("cert_file", ""),
        etcd_key_file=url.query.get("key_file", ""),
        etcd_username=user,
        etcd_password=password,
    )


def _hosts(url: _DatastoreURL, accepted: str) -> tuple[str, ...]:
    hosts = tuple(url.hosts.split(",")) if url.hosts else ()
    for host in hosts:
        try:
            named = urlsplit(f"//{host}")
            # Nothing decodes a host; behind an IPv6 address, % begins the name of an interface.
            is_complete = bool(named.hostname) and named.port != 0 and ("%" not in host or "[" in host)
        except ValueError:
            is_complete = False
        if not is_complete:
            raise url.error("a host or its port is missing or wrong", accepted)
    return hosts


def _parse_kubernetes(url: _DatastoreURL) -> DatastoreSettings:
    accepted = "kubernetes: and kubernetes:///path/of/kubeconfig are accepted, and the options context and api_group"
    url.refuse_host(accepted)
    url.refuse_unknown_options(("context", "api_group"), accepted)
    return DatastoreSettings(
        type=KUBERNETES_DATASTORE,
        kubernetes=KubernetesAccess(kubeconfig=url.path, context=url.query.get("context", "")),
        api_group=url.query.get("api_group", ""),
    )


def _parse_foreign(url: _DatastoreURL) -> DatastoreSettings:
    """The settings of a backend that is not netplug's own: each part of its URL is an option."""
    user, password = url.credentials
    host, colon, port = url.hosts.rpartition(":")
    if not colon or not port.isdigit() or "," in host:  # several hosts, or the end of an IPv6 address
        host, port = url.hosts, ""
    parts = {"user": user, "password": password, "host": host, "port": port, "path": url.path}
    given = {name: value for name, value in parts.items() if value}
    for name in given:
        if name in url.query:
            raise url.error(f"the option {quote(name)} is a part of the URL too", "give it once")
    return DatastoreSettings(type=url.parts.scheme, options={**given, **url.query})


_PARSERS: Mapping[str, Callable[[_DatastoreURL], DatastoreSettings]] = {
    "memory": _parse_memory,
    "sqlite": _parse_sqlite,
    "etcd": _parse_etcd,
    "etcdv3": _parse_etcd,
    "kubernetes": _parse_kubernetes,
}
