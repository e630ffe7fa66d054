"""The executables ``netplug`` and ``netplug-ipam``.

``client`` is what the file on a host runs: it asks the node process. ``main`` is the standalone program, in which it
goes on where none answers.
"""
