"""The rules of ``host-local``: addresses of fixed ranges, one file for each that is held, on one host.

``settings`` decodes the configuration and checks its ranges, ``reserve`` says what the files of a network mean, and
chooses addresses. ``netplug_backends.hostlocal`` reads and writes the files. The layout is that of the
well-known plugin of the same name, so that either program can go on where the other stopped.
"""
