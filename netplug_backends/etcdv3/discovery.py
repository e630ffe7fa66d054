"""Members found through DNS SRV records (RFC 2782): the setting ``etcd_discovery_srv``.

Asked once, when the store is opened. The only module that imports a DNS client, and only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_backends.etcdv3.endpoints import Endpoint
from netplug_core.errors import Unavailable

if TYPE_CHECKING:
    from dns.rdtypes.IN.SRV import SRV

__all__ = ["discover"]

_FAILED = "failed to discover etcd endpoints through SRV discovery"
_SERVICES = (("_etcd-client-ssl._tcp", "https"), ("_etcd-client._tcp", "http"))
_ANSWER_S = 5.0


def discover(domain: str) -> tuple[Endpoint, ...]:
    """The members of a domain: those with TLS first, each service by priority and weight.

    Raises:
        Unavailable: neither service has a record, or nobody answers for the domain.
    """
    from dns.exception import DNSException

    found: dict[Endpoint, None] = {}
    problems: list[str] = []
    for service, scheme in _SERVICES:
        try:
            records = _records(f"{service}.{domain}")
        except (DNSException, OSError) as error:
            problems.append(f"{service}: {str(error) or type(error).__name__}")
            continue
        for record in records:
            host = record.target.to_text(omit_final_dot=True)
            found[Endpoint(scheme, host, record.port)] = None
    if not found:
        raise Unavailable(_FAILED, f"domain {domain!r}: {'; '.join(problems)}")
    return tuple(found)


def _records(name: str) -> list[SRV]:
    from dns.resolver import resolve

    # A name ends here: nothing of the host's search list is to be appended to it.
    answer = resolve(f"{name.removesuffix('.')}.", "SRV", lifetime=_ANSWER_S)
    return sorted(answer, key=lambda record: (record.priority, -record.weight, record.target, record.port))
