"""Address assignment over a datastore: the block IPAM, addresses, affinities, pools, the collector."""
