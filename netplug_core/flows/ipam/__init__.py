"""The block IPAM (``service``) and what it remembers (``cache``), bulk changes of addresses and affinities, and the collector (``collect``)."""
