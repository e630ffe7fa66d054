"""The garbage collector's rules; ``netplug_core.flows.ipam.collect`` runs them.

``candidates`` judges whether one allocation looks leaked, and has what a live lookup answers and all other values.
``detect`` scans a view of the store and the cluster for everything that is abandoned. ``reclaim`` compares leaks with
live lookups, since both have to agree before an address is freed, and decides the writes.
"""
