"""The user-facing kinds, one module each.

``ippool``, ``ipreservation``, ``ipamconfiguration``, ``node``, ``profile``, ``workloadendpoint`` and
``clusterinformation`` share ``metadata``. ``kinds`` is their table. ``codec`` turns JSON-like mappings into values and
back; ``codec_ippool``, ``codec_ipam``, ``codec_profile``, ``codec_workloadendpoint`` and the reader ``fields`` are its
parts.
``validation`` says what a user may ask for, alone and beside what is stored already; ``edits`` what becomes of a stored
one that a label or a patch changes.
"""
