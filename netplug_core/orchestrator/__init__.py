"""Pods, namespaces and nodes and the interface that looks them up (``model``)."""
