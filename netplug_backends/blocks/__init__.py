"""The core's block allocator, offered as the IPAM ``netplug-ipam``: ``hookimpls`` and ``ipam``."""
