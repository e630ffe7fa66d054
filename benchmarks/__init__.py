"""Benchmarks of netplug beside a reference: ``python -m benchmarks``.

``attach`` measures ADD and DEL beside other plugins, ``blocks`` the JSON, the changes and the memory of blocks,
``cluster`` assignments in a cluster that fills up. ``measure`` runs and measures a process. A new benchmark is a module
with ``measure(rounds)`` and a line in the table of ``__main__``.
"""
