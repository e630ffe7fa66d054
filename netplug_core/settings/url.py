"""Datastore settings from one URL, as ``netplug_core.open`` takes it.

The scheme names the backend. Four schemes have a form of their own; the URL of any other backend is taken apart into
``options`` for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from attrs import frozen

from netplug_core.addressing import without_ipv4_brackets
from netplug_core.errors import REDACTED, ConfigurationError, narrow, quote
from netplug_core.settings.model import (
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    MEMORY_DATASTORE,
    SQLITE_DATASTORE,
    DatastoreSettings,
    KubernetesAccess,
)

__all__ = ["InvalidURL", "datastore_settings_from_url", "redact_url"]

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
_FLAGS = {"true": True, "false": False}


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
    if flag not in _FLAGS:
        raise url.error("tls is neither true nor false", accepted)
    scheme = "https" if _FLAGS[flag] else "http"
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
