"""A cluster of block IPAMs in simulated time, for ``netplugctl simulate``.

``simulator`` runs a ``scenario`` and returns its result: it assigns the addresses of the scenario's pods as a node
does, and reads the pools after every step.
"""
