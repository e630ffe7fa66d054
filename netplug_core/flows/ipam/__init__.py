"""The block IPAM (``service``), bulk changes of addresses and affinities, and the collector (``collect``)."""
