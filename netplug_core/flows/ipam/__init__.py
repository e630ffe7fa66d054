"""The block IPAM (``service``), what it remembers (``cache``), bulk changes, and the collector (``collect``)."""
