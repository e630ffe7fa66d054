"""The executables ``netplug`` and ``netplug-ipam``: ``main`` is what the file on the host runs."""
