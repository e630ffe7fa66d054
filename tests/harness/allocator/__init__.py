"""The machine that tests the allocator: nodes, users and a collector over one store with faults.

``machine`` has the state machine that a test module runs. ``harness`` has the same cluster without Hypothesis, for
tests that take one step after the other. An operation is a value (``operations``; ``strategies`` draws them), and so
is a fault of a store call (``client``). After every commit ``invariants`` and ``history`` check the stored state
(``state``). After every operation ``call_invariants`` checks the answer, ``model`` checks who holds which address, and
``oracle`` says how many addresses a request must get.
"""
