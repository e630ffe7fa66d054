"""Throw-away keys and certificates for tests of TLS, as files (PyPI ``trustme``)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import trustme
from attrs import frozen

__all__ = ["Certificates", "issue_certificates"]

_LONG_AGO = (datetime(2020, 1, 1), datetime(2021, 1, 1))  # noqa: DTZ001  # trustme takes it for UTC


@frozen(kw_only=True)
class Certificates:
    """A server's and a client's key and certificate and the root that issued them, and what is wrong beside them."""

    root: Path
    server_key: Path
    server_certificate: Path
    key: Path
    certificate: Path
    expired_key: Path
    expired_certificate: Path
    other_root: Path
    other_key: Path
    other_certificate: Path


def issue_certificates(folder: Path) -> Certificates:
    """Fresh ones in a folder. The server is 127.0.0.1, the client is called ``netplug``."""
    ours, others = trustme.CA(), trustme.CA()
    before, after = _LONG_AGO
    leaves = {
        "server": ours.issue_cert("127.0.0.1"),
        "client": ours.issue_cert("netplug", common_name="netplug"),
        "expired": ours.issue_cert("netplug", not_before=before, not_after=after),
        "other": others.issue_cert("netplug"),
    }
    paths: dict[str, Path] = {}
    for name, leaf in leaves.items():
        paths[f"{name}.key"] = _write_pem(folder / f"{name}.key", leaf.private_key_pem)
        paths[f"{name}.crt"] = _write_pem(folder / f"{name}.crt", *leaf.cert_chain_pems)
    return Certificates(
        root=_write_pem(folder / "ca.crt", ours.cert_pem),
        server_key=paths["server.key"],
        server_certificate=paths["server.crt"],
        key=paths["client.key"],
        certificate=paths["client.crt"],
        expired_key=paths["expired.key"],
        expired_certificate=paths["expired.crt"],
        other_root=_write_pem(folder / "other-ca.crt", others.cert_pem),
        other_key=paths["other.key"],
        other_certificate=paths["other.crt"],
    )


def _write_pem(path: Path, *blobs: trustme.Blob) -> Path:
    path.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return path
