"""``netplugctl``.

``main`` finds the command and picks the exit code, ``session`` is what commands act through, ``documents`` reads and
writes YAML and JSON, ``tables`` and ``report`` turn results into lines; ``commands`` has one module per group of verbs.
"""
