"""Block-based address assignment, pure.

What is asked (``request``), what is stored (``block`` and its ``attributes``, ``affinity``, ``handle``, and
``codec``, their JSON), and the rules: which pools may serve (``pools``), in which order blocks are tried
(``search``), where addresses come from (``supply``), and the two decisions, ``decide`` (assign) and ``release``.
``trace`` holds what a decision noted, ``leaks`` and ``utilization`` what can be said of all blocks, ``interface``
what any IPAM offers. The collector finds (``survey``), weighs (``confirmation``) and gives back (``reclaim``) what
nobody uses; ``collection``, ``holdings`` and ``witness`` are its values, ``census`` its counts. Nothing here can
import a datastore.
"""
