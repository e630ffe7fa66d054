"""The IPAM ``netplug-ipam``: offers ``netplug_core.flows.ipam``, the block allocator, to the registry."""
