"""The IPAM of any other ``ipam.type``: a program of that name in CNI_PATH (``netplug_core.cni.delegation``)."""
