"""IP address management, block-based for the most part: values and rules, without I/O.

``model`` is what is stored: blocks, affinities, handles and attributes. ``allocation`` decides assignments and
releases, and ``outcome`` holds the trace and the refusals of a decision. ``gc`` decides what the garbage collector
frees. ``reporting`` computes utilization and metrics, and checks whether records fit together. ``hostlocal`` has the
rules of the IPAM ``host-local``, which stores files and no blocks. ``protocol`` is the interface of every IPAM.
"""
