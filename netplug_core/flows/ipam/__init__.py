"""The block IPAM (``service``), what it remembers (``cache``), bulk changes, the collector and the check.

``collect`` has the collector, ``check`` the check of all records with its repairs. ``endpoint`` commits the endpoints
of the other IPAMs.
"""
