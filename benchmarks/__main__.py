"""Runs every benchmark, or those that are named: ``python -m benchmarks [NAME ...]``.

Each is a module with ``measure(rounds)``, which prints its result, or raises ``SystemExit`` if it cannot run. The
benchmarks print ratios to a reference that is measured in the same run, because milliseconds depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

BENCHMARKS = {
    "blocks": "the JSON of blocks, their changes and their memory beside plain JSON",
    "cluster": "assignments at 500, 2,000 and 5,000 nodes beside plain JSON, and searches for blocks",
    "full_cluster": "an address for a full node in a full cluster beside one from a block with room",
    "client": "a call to a server that only replies, beside a start of Python",
    "attach": "ADD and DEL beside the well-known plugins",
    "served": "ADD and DEL that a node process serves beside the well-known plugins",
    "held": "ADD of pods that wait for their policy beside those that do not",
    "restart": "the first answer of a node process that starts again beside an import of its libraries",
    "bgp": "a new block at another node, the start of nodes and memory of BIRD beside FRR",
    "controllers": "the controllers of a cluster of 5,000 nodes and 250,000 pods: first sync, memory, CPU, a change",
    "documents": "a document in a file of 5,000 pools beside one in a file of 100",
    "view": "an event of 100,000 records beside a plain dict, and 1,000 wake-ups a second",
    "nat": "the packet filter with 10,000 prefixes and floating addresses beside one",
    "policy": "policy for 20,000 endpoints and 1,000 selectors beside json.loads of the pods",
    "policy_programming": "a pod more in the kernel's table of policy beside one nft -f - with the same",
    "policy_packets": "a packet that passes a node with the table of policy beside no table",
    "routes": "routes to 5,000 nodes beside ip and bridge, and looked through again beside pyroute2",
    "tool": "the help of netplugctl and get beside bare imports, and long commands on 250,000 addresses",
}


def main() -> int:
    """Measure and print; return the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all without one")
    parser.add_argument("-n", "--rounds", type=int, default=40, help="measured rounds (default 40)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    problems = 0
    for name in arguments.names or BENCHMARKS:
        print(f"\n{name}: {BENCHMARKS[name]}\n", flush=True)
        try:
            import_module(f"benchmarks.{name}").measure(arguments.rounds)
        except SystemExit as refusal:
            print(refusal, file=sys.stderr)
            problems += 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
