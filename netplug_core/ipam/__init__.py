"""Block-based IP address management: values and rules, without I/O.

``model`` is what is stored: blocks, affinities, handles and attributes. ``allocation`` decides assignments and
releases, and ``outcome`` holds the trace and the refusals of a decision. ``gc`` decides what the garbage collector
frees. ``reporting`` computes utilization and metrics, and checks whether records fit together.
``protocol`` is the interface that every IPAM implements.
"""
