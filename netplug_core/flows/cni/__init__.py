"""The CNI commands, each as a script of ordered effects.

``call`` serves one invocation from beginning to end. ``add``, ``delete`` and ``check`` hold one command each, for
``netplug`` and for ``netplug-ipam``, ``status`` holds STATUS and GC; what they share is in ``call``: node, workload and
link of a call, and its addresses. ``pods`` has the pod of an ADD and what it waits for, ``release_records`` what a DEL
leaves in an outage.
"""
