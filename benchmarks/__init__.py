"""Measurements of netplug beside something else: ``python -m benchmarks``.

``attach`` is ADD and DEL beside other plugins, process by process (``measure``); ``blocks`` the JSON, the changes and
the memory of blocks. A new one is a module with ``measure(rounds)`` and a line in the table of ``__main__``.
"""
