"""The CNI commands, each as a script of ordered effects.

``add``, ``delete``, ``check``, ``status`` and ``gc`` have those of ``netplug``, and check, status and GC of
``netplug-ipam`` too; ``addresses`` has its ADD and DEL. ``call`` works out node, workload and link of a call.
``assignment`` assigns and releases addresses under the host's lock.
"""
