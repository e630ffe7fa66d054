"""Short scripts that let rules decide and interfaces act.

``add``, ``delete``, ``check``, ``status`` and ``gc`` (the CNI commands), ``assign`` (addresses under the host's lock)
and ``ipam`` (the same commands for ``netplug-ipam``) act through ``world``, the opened interfaces. ``netplugctl`` calls
``resources`` (create, apply, replace, edit, delete; ``pools`` and ``outcome`` belong to it), ``labels``, ``cluster``
(the records that there is one of) and ``overview`` (what can be seen of addresses). ``addresses`` and ``affinities``
change in bulk what is held and claimed; ``collect`` finds what nobody holds. ``simulate`` lets made-up pods come and go
(``study`` is its question and its answer; ``population`` and ``gauge`` belong to it). The only place in the core where
effects are ordered.
"""
