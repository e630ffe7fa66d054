"""The tool ``netplugctl``.

``main`` finds the named command and picks the exit status; ``commands`` has one module per group of verbs. ``session``
is what commands act through: ``settings`` finds the configuration, ``tracing`` prints what the log level asks for.
``documents`` reads files. ``arguments`` and ``global_options`` read the command line. ``tables``, ``ipam_tables`` and
``report`` render results; ``simulation`` does it for ``simulate``.
"""
