"""The block IPAM (``service``), what it remembers (``cache``), bulk changes, and the collector (``collect``).

``endpoint`` commits the endpoints of the other IPAMs.
"""
