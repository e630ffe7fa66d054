"""The rules of ``host-local``: addresses of fixed ranges, one file for each that is held, on one host.

``settings`` decodes the configuration, ``ranges`` checks its ranges, ``folder`` says what the files of a network mean,
and ``reserve`` chooses addresses. ``netplug_backends.hostlocal`` reads and writes the files. The layout is that of the
well-known plugin of the same name, so that either program can go on where the other stopped.
"""
