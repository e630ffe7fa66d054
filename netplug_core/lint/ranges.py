"""The ranges of pods beside those of services, the networks of hosts and the routes of a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import STRING, Codec, Refused
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, document_error
from netplug_core.lint.clusters import Cluster
from netplug_core.lint.rules import Finding, Rule, format_path
from netplug_core.names import HOST_INTERFACE_PREFIX

__all__ = ["HostRoute", "Surroundings", "check_ranges", "read_routes"]


@frozen(kw_only=True)
class HostRoute:
    """A route of a host. ``destination`` is None for the default route."""

    destination: Prefix | None = None
    device: str = ""

    def __str__(self) -> str:
        return f"{self.destination} dev {self.device or '-'}"


@frozen(kw_only=True)
class Surroundings:
    """What else has addresses where pods run."""

    services: tuple[Prefix, ...] = ()
    hosts: tuple[Prefix, ...] = ()
    routes: tuple[HostRoute, ...] = ()


@frozen(kw_only=True)
class _Routes:
    routes: tuple[HostRoute, ...]


@frozen(kw_only=True)
class _Range:
    """Addresses of pods, and where they are configured."""

    prefix: Prefix
    source: str
    subject: str
    field: str
    is_pool: bool

    def finding(self, rule: Rule, accepted: str) -> Finding:
        return Finding(
            rule=rule,
            source=self.source,
            subject=self.subject,
            field=self.field,
            value=str(self.prefix),
            accepted=accepted,
        )


def _read_destination(value: object) -> Prefix | None:
    text = str(STRING.decode(value))
    try:
        return None if text == "default" else Prefix.parse(text)
    except ValueError:
        raise Refused("default or a CIDR") from None


_DECODER: Final = Decoder(
    document_error,
    tables=(
        Table(cls=_Routes, fields={"routes": Field("routes", ListOf(HostRoute))}),
        Table(
            cls=HostRoute,
            fields={"destination": Field("dst", Codec(_read_destination)), "device": Field("dev", STRING)},
        ),
    ),
)


def read_routes(value: object, *, source: str) -> tuple[HostRoute, ...]:
    """The routes of a host, as ``ip -j route`` prints them.

    Raises:
        ConfigurationError: it prints something else.
    """
    return _DECODER.decode({"routes": value}, _Routes, source).routes


def check_ranges(cluster: Cluster, surroundings: Surroundings) -> Iterator[Finding]:
    """What ranges of pods have in common with others."""
    ranges = tuple(_ranges(cluster))
    for one in ranges:
        yield from _range_problems(one, surroundings)
    yield from _service_problems(surroundings)
    pools = [one for one in ranges if one.is_pool]
    for one in ranges:
        for pool in pools if not one.is_pool else ():
            if pool.prefix.overlaps(one.prefix):
                yield one.finding(
                    Rule.TWO_IPAMS, f"a range outside of {pool.prefix}, that of {pool.subject}, is expected"
                )


def _range_problems(one: _Range, surroundings: Surroundings) -> Iterator[Finding]:
    for services in surroundings.services:
        if services.overlaps(one.prefix):
            yield one.finding(Rule.RANGE_OF_SERVICES, f"a range outside of {services}, that of services, is expected")
    for hosts in surroundings.hosts:
        if hosts.overlaps(one.prefix):
            yield one.finding(Rule.RANGE_OF_HOSTS, f"a range outside of {hosts}, the network of hosts, is expected")
    for route in surroundings.routes:
        if _is_foreign(route) and route.destination is not None and route.destination.overlaps(one.prefix):
            yield one.finding(Rule.RANGE_ROUTED, f"a range without other routes is expected; the host has {route}")


def _service_problems(surroundings: Surroundings) -> Iterator[Finding]:
    for services in surroundings.services:
        for hosts in surroundings.hosts:
            if services.overlaps(hosts):
                yield Finding(
                    rule=Rule.SERVICES_IN_HOSTS,
                    source="command line",
                    subject="services",
                    field="--service-cidr",
                    value=str(services),
                    accepted=f"a range outside of {hosts}, the network of hosts, is expected",
                )


def _is_foreign(route: HostRoute) -> bool:
    """Whether another program made a route: those of netplug lead to its own interfaces."""
    return not route.device.startswith(HOST_INTERFACE_PREFIX)


def _ranges(cluster: Cluster) -> Iterator[_Range]:
    for pool in cluster.all_pools:
        prefix, subject = pool.value.spec.prefix, str(pool.value.key)
        yield _Range(prefix=prefix, source=pool.source, subject=subject, field="spec.cidr", is_pool=True)
    for one in cluster.configurations:
        field = format_path(one.path_of(("ipam", "ranges")))
        for range_set in one.range_sets:
            for each in range_set.ranges:
                yield _Range(
                    prefix=each.subnet, source=one.document.source, subject=one.subject, field=field, is_pool=False
                )
