"""Members found through DNS SRV records (RFC 2782): the setting ``etcd_discovery_srv``.

Asked by a client's first call, in its time. The only module that imports a DNS client, and only then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import accumulate
from threading import Thread
from typing import TYPE_CHECKING

from netplug_backends.etcdv3.endpoints import EtcdEndpoint, RandomBelow
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable, redact_url_credentials

if TYPE_CHECKING:
    from dns.name import Name
    from dns.rdtypes.IN.SRV import SRV
    from dns.resolver import Resolver

__all__ = ["SrvMembers"]

_FAILED = "failed to discover etcd endpoints through SRV discovery"
_SERVICES = {"_etcd-client-ssl._tcp": "https", "_etcd-client._tcp": "http"}
_LOOKUP_TIMEOUT_S = 1.5  # a STATUS has two seconds for everything
_SERVER_TIMEOUT_S = 0.5  # then the next name server is asked, or the same one again
_WEIGHT_FACTOR = 100  # how much more often a record of weight 1 is drawn than one of weight 0

_NOT_IN_NAMES = frozenset("@:/")


class SrvMembers:
    """The members that a domain's SRV records name: those with TLS first, each service by priority and weight.

    Raises:
        ConfigurationError: the domain is no name.
    """

    def __init__(self, domain: str) -> None:
        from dns.exception import DNSException
        from dns.name import from_text

        accepted = "give the name of a domain"
        if not _NOT_IN_NAMES.isdisjoint(domain):  # a URL, perhaps with a password, which is nothing to ask servers for
            raise ConfigurationError("etcd_discovery_srv", redact_url_credentials(domain), accepted)
        try:
            # A name ends here: nothing of the host's search list is to be appended to it.
            self._names = {service: from_text(f"{service}.{domain.removesuffix('.')}.") for service in _SERVICES}
        except (DNSException, ValueError) as error:
            raise ConfigurationError("etcd_discovery_srv", domain, accepted) from error
        self._domain = domain

    @property
    def location(self) -> str:
        """What people call the cluster."""
        return f"SRV records of {self._domain}"

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members; the first is drawn by its weight among those of the first priority.

        Raises:
            Unavailable: neither service has a record, or nobody answers for the domain.
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
        """The records of each service in their order, or why there are none; both are asked at once."""
        from dns.exception import DNSException
        from dns.resolver import get_default_resolver

        try:
            resolver = copy(get_default_resolver())
        except (DNSException, OSError, ValueError) as error:  # it names no name server, or not by its address
            return dict.fromkeys(self._names, f"/etc/resolv.conf: {error}")
        resolver.timeout, seconds = _SERVER_TIMEOUT_S, deadline.remaining_s
        outcomes: dict[str, Sequence[SRV] | str] = dict.fromkeys(self._names, _no_answer(seconds))

        def ask(service: str) -> None:
            outcomes[service] = _records(resolver, self._names[service], seconds)

        threads = [Thread(target=ask, args=(service,), daemon=True) for service in self._names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(deadline.remaining_s)  # the library rests a little after its last try
        return dict(outcomes)


def _records(resolver: Resolver, name: Name, timeout_s: float) -> Sequence[SRV] | str:
    from dns.exception import DNSException, Timeout
    from dns.name import root
    from dns.resolver import NXDOMAIN, NoAnswer

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
    return records or "it says that there is no such service"  # which is what a target of nothing but a dot means


def _no_answer(timeout_s: float) -> str:
    return f"no name server answered within {timeout_s:.1f} s"


def _random_first(records: Sequence[SRV], random_below: RandomBelow) -> Sequence[SRV]:
    """Records with one of the first priority, drawn by its weight, before all others."""
    equals = [record for record in records if record.priority == records[0].priority]
    ends = tuple(accumulate(_WEIGHT_FACTOR * record.weight + 1 for record in equals))
    return [equals[bisect_right(ends, random_below(ends[-1]))], *records]


def _endpoint(scheme: str, record: SRV) -> EtcdEndpoint:
    return EtcdEndpoint(scheme, record.target.to_text(omit_final_dot=True), record.port)


def _problem(outcomes: Mapping[str, object]) -> str:
    if len(set(outcomes.values())) == 1:
        return str(next(iter(outcomes.values())))
    return "; ".join(f"{service}: {problem}" for service, problem in outcomes.items())
