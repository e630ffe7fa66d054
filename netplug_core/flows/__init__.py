"""Short scripts that let rules decide and interfaces act.

``add``, ``delete``, ``check``, ``status`` and ``gc`` (the
CNI commands), ``assign`` (addresses under the host's lock), ``ipam`` (the same commands for ``netplug-ipam``),
``resources`` (what ``netplugctl`` does), and ``world``, the opened interfaces they act through. The only place in the
core where effects are ordered.
"""
