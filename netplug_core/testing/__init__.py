"""The testing kit: strategies, clocks, stores with faults, and a conformance suite for each interface.

``strategies`` (Hypothesis), ``clock`` (manual and real), ``assertions``, ``faults`` (stores that fail by script, and
damaged records), ``datastore_conformance`` (checks and a state machine; ``datastore_harness`` has what it takes),
``dataplane_checks``, ``routing_checks``, ``ruleset_checks``, ``orchestrator_checks``, ``lock_checks``. ``concurrency``
is the only module that starts threads. The kit needs the extra ``netplug[testing]``; no product module imports it.
"""
