"""How many examples a machine tries on a real server, where a step costs milliseconds: some in CI, plenty at night."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["APISERVER_EXAMPLES", "ETCD_EXAMPLES"]

ETCD_EXAMPLES = settings(max_examples=max(10, settings().max_examples // 12))
APISERVER_EXAMPLES = settings(max_examples=max(5, settings().max_examples // 25))
"""For an API server: each write is a request of its own."""
