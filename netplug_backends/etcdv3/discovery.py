"""Finds the members through DNS SRV records (RFC 2782): the setting ``etcd_discovery_srv``.

A client's first call does the lookup, within its deadline. This is the only module that imports dnspython; ``factory``
imports it only where the setting is given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import accumulate
from threading import Thread

from dns.exception import DNSException, Timeout
from dns.name import Name, from_text, root
from dns.rdtypes.IN.SRV import SRV
from dns.resolver import NXDOMAIN, NoAnswer, Resolver, get_default_resolver

from netplug_backends.etcdv3.client import RandomBelow
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable, redact_url_credentials
from netplug_core.settings.model import EtcdEndpoint

__all__ = ["SrvMembers"]

_FAILED = "failed to discover etcd endpoints through SRV discovery"
_SERVICES = {"_etcd-client-ssl._tcp": "https", "_etcd-client._tcp": "http"}
_LOOKUP_TIMEOUT_S = 1.5  # a STATUS has two seconds for everything
_SERVER_TIMEOUT_S = 0.5  # then the next name server is tried, or the same one again
_WEIGHT_FACTOR = 100  # a record of weight 1 is drawn this many times as often as one of weight 0

_NOT_IN_NAMES = frozenset("@:/")


class SrvMembers:
    """The members in a domain's SRV records: those with TLS first, each service by priority and weight.

    Raises:
        ConfigurationError: the domain is not a valid name.
    """

    def __init__(self, domain: str) -> None:
        accepted = "give the name of a domain"
        if not _NOT_IN_NAMES.isdisjoint(domain):  # a URL, perhaps with a password, must not be sent to name servers
            raise ConfigurationError("etcd_discovery_srv", redact_url_credentials(domain), accepted)
        try:
            # The final dot makes the name absolute, so the host's search list is not used.
            self._names = {service: from_text(f"{service}.{domain.removesuffix('.')}.") for service in _SERVICES}
        except (DNSException, ValueError) as error:
            raise ConfigurationError("etcd_discovery_srv", domain, accepted) from error
        self._domain = domain

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        return f"SRV records of {self._domain}"

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members; the first one is drawn by weight among those of the first priority.

        Raises:
            Unavailable: neither service has a record, or no name server answers.
        """
        outcomes = self._look_up(deadline.capped(_LOOKUP_TIMEOUT_S))
        found: dict[EtcdEndpoint, None] = {}
        for service, records in outcomes.items():
            if not isinstance(records, str):
                ordered = records if found else _random_first(records, random_below)
                found |= dict.fromkeys(_endpoint(_SERVICES[service], record) for record in ordered)
        if not found:
            raise Unavailable(_FAILED, f"domain {self._domain!r}: {_problem(outcomes)}")
        return tuple(found)

    def _look_up(self, deadline: Deadline) -> Mapping[str, Sequence[SRV] | str]:
        """The records of each service in order, or why there are none; both services are looked up at once."""
        try:
            resolver = copy(get_default_resolver())
        except (DNSException, OSError, ValueError) as error:  # the file has no usable name server
            return dict.fromkeys(self._names, f"/etc/resolv.conf: {error}")
        resolver.timeout, seconds = _SERVER_TIMEOUT_S, deadline.remaining_s
        outcomes: dict[str, Sequence[SRV] | str] = dict.fromkeys(self._names, _no_answer(seconds))

        def look_up(service: str) -> None:
            outcomes[service] = _records(resolver, self._names[service], seconds)

        threads = [Thread(target=look_up, args=(service,), daemon=True) for service in self._names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(deadline.remaining_s)  # the library may return a little later than its timeout
        return dict(outcomes)


def _records(resolver: Resolver, name: Name, timeout_s: float) -> Sequence[SRV] | str:
    try:
        answer = resolver.resolve(name, "SRV", lifetime=timeout_s)
    except Timeout:
        return _no_answer(timeout_s)
    except NXDOMAIN:
        return "there is no such name"
    except NoAnswer:
        return "it has no SRV records"
    except (DNSException, OSError) as error:
        return str(error) or type(error).__name__
    records = [record for record in answer if record.target != root]
    records.sort(key=lambda record: (record.priority, -record.weight, record.target, record.port))
    return records or "it says that there is no such service"  # a target of only a dot means that (RFC 2782)


def _no_answer(timeout_s: float) -> str:
    return f"no name server answered within {timeout_s:.1f} s"


def _random_first(records: Sequence[SRV], random_below: RandomBelow) -> Sequence[SRV]:
    """The records, with one of the first priority in front, drawn by weight."""
    equals = [record for record in records if record.priority == records[0].priority]
    ends = tuple(accumulate(_WEIGHT_FACTOR * record.weight + 1 for record in equals))
    return [equals[bisect_right(ends, random_below(ends[-1]))], *records]


def _endpoint(scheme: str, record: SRV) -> EtcdEndpoint:
    return EtcdEndpoint(scheme, record.target.to_text(omit_final_dot=True), record.port)


def _problem(outcomes: Mapping[str, object]) -> str:
    if len(set(outcomes.values())) == 1:
        return str(next(iter(outcomes.values())))
    return "; ".join(f"{service}: {problem}" for service, problem in outcomes.items())
