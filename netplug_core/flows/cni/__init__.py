"""The CNI commands, each as a script of ordered effects.

``add``, ``delete``, ``check``, ``status`` and ``gc`` hold one command each, for ``netplug`` and for ``netplug-ipam``.
``call`` is what they share: node, workload and link of a call, and its addresses.
"""
