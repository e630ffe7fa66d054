"""The IPAM ``host-local``: addresses of fixed ranges, held by files of this host (``netplug_core.ipam.hostlocal``)."""
