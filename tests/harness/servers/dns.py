"""A name server of the test's own on loopback that knows some SRV records (dnspython)."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.rrset

__all__ = ["DNSServer", "open_name_server", "use_name_server"]


class DNSServer:
    """Answers with the records it is given: for a name the texts ``priority weight port target`` of its records."""

    def __init__(self, records: Mapping[str, Sequence[str]]) -> None:
        self._records = {dns.name.from_text(name): texts for name, texts in records.items()}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.queried_names: list[str] = []
        Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                data, client = self._socket.recvfrom(4096)
                if data:
                    self._socket.sendto(self._answer(dns.message.from_wire(data)).to_wire(), client)

    def _answer(self, question: dns.message.Message) -> dns.message.Message:
        name = question.question[0].name
        self.queried_names.append(name.to_text())
        answer = dns.message.make_response(question)
        answer.flags |= dns.flags.RA
        texts = self._records.get(name)
        if texts is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif texts:
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "SRV", *texts))
        return answer


@contextmanager
def open_name_server(records: Mapping[str, Sequence[str]]) -> Iterator[DNSServer]:
    """A server with those records, which this process asks."""
    server = DNSServer(records)
    try:
        with use_name_server(server.port):
            yield server
    finally:
        server.close()


@contextmanager
def use_name_server(port: int) -> Iterator[None]:
    """Make this process ask the name server on a port of loopback."""
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = port
    before, dns.resolver.default_resolver = dns.resolver.default_resolver, resolver
    try:
        yield
    finally:
        dns.resolver.default_resolver = before
