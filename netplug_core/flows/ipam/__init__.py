"""The block IPAM (``service``), what it remembers (``cache``), bulk changes, the collector and the check.

``collect`` has the collector, ``check`` the check of all records with its repairs, ``leaks`` the report of all
addresses and the release of those that it names. ``addresses`` and ``affinities`` are for changes by hand.
"""
