"""How many examples the tests try whose examples are long: few before each change, plenty at night.

`make nightly` takes the share of the profile's examples that stands first in each line, whatever CI takes.
"""

from __future__ import annotations

from hypothesis import settings

from tests.harness.local_stores import IS_DEEP

__all__ = [
    "ALLOCATOR_EXAMPLES",
    "APISERVER_EXAMPLES",
    "COLLECTOR_EXAMPLES",
    "CONFORMANCE_EXAMPLES",
    "CONTENTION_EXAMPLES",
    "CONVERSION_EXAMPLES",
    "ETCD_EXAMPLES",
    "FILES",
    "KERNEL_EXAMPLES",
    "MALFORMED_CALLS",
    "MALFORMED_PROCESSES",
    "POLICY_EXAMPLES",
]

_ALL = settings().max_examples

# A step is many calls, and each is checked.
ALLOCATOR_EXAMPLES = settings(max_examples=_ALL // 4 if IS_DEEP else max(8, _ALL // 5))
COLLECTOR_EXAMPLES = settings(max_examples=_ALL if IS_DEEP else _ALL // 4)
# For the suite's own settings. It draws so many short examples and so many long ones, after its plain checks.
CONFORMANCE_EXAMPLES = _ALL if IS_DEEP else _ALL // 4
# An example is a whole cluster of threads, which takes a tenth of a second and more.
CONTENTION_EXAMPLES = settings(max_examples=_ALL // 6 if IS_DEEP else 2)
# An example is some forty looks of an operator at a cluster.
CONVERSION_EXAMPLES = settings(max_examples=_ALL // 5)
# On a real server a step costs milliseconds; on an API server each write is a request of its own.
ETCD_EXAMPLES = settings(max_examples=_ALL // 12 if IS_DEEP else 6)
APISERVER_EXAMPLES = settings(max_examples=_ALL // 20 if IS_DEEP else 3)
# An example is a history of policies; packets walk through the tables of each state, and all that are in between.
POLICY_EXAMPLES = settings(max_examples=_ALL if IS_DEEP else _ALL // 3)
# An example programs a kernel and sends packets, a quarter of a second for each that is dropped.
KERNEL_EXAMPLES = settings(max_examples=_ALL // 3)
# An example makes a folder with a few files.
FILES = settings(max_examples=2_000 if IS_DEEP else 150)
# A call within this process takes some milliseconds, one of the installed executables a tenth of a second.
MALFORMED_CALLS = settings(max_examples=10_000 if IS_DEEP else 100)
MALFORMED_PROCESSES = settings(max_examples=200 if IS_DEEP else 8)
