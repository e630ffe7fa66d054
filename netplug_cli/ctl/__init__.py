"""``netplugctl``.

``script`` is what is installed, ``main`` finds the command and picks the exit code, ``session`` is what commands act
through (``configuration`` finds its settings, ``tracing`` tells what it does), ``documents`` reads and writes YAML and
JSON, ``tables`` and ``report`` turn results into lines; ``commands`` has one module per group of verbs.
"""
