"""The garbage collector's rules; ``netplug_core.flows.ipam.collect`` runs them.

``candidates`` judges whether one allocation looks leaked. ``detect`` scans a view of the store and the cluster for
everything that is abandoned, with ``handle_counts`` (what the blocks say that handles hold) and ``grace`` (since when
something looks abandoned). ``confirm`` compares leaks with live lookups (``lookup``): both have to agree before an
address is freed. ``reclaim`` decides the writes. ``model`` has the values. ``attachments`` finds what the CNI command
GC compares with the runtime's list.
"""
