"""Block-based address assignment, pure.

What is asked (``request``), what is stored (``block``, ``affinity``, ``handle``, and ``codec``, their JSON), and the
rules: which pools may serve (``pools``), in which order blocks are tried (``search``), where addresses come from
(``supply``), and the two decisions, ``decide`` (assign) and ``release``. ``trace`` holds what a decision noted,
``leaks`` and ``utilization`` what can be said of all blocks, ``interface`` what any IPAM offers. Nothing here can
import a datastore.
"""
