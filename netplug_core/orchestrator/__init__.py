"""Pods, namespaces and nodes (``model``), and the interface that looks them up (``protocol``)."""
