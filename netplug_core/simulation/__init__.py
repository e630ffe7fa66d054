"""A cluster of block IPAMs in simulated time, for ``netplugctl simulate``.

``simulator`` runs a ``scenario`` and returns a ``result``. ``pod_generator`` schedules and replaces the pods,
``allocator`` assigns their addresses, ``metrics`` reads the pools after every step, ``clock`` is the simulated time,
and ``counting_datastore`` counts the calls.
"""
