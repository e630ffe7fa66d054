"""Datastores of typed records.

``protocol``: what a store is. ``transaction``: the one loop that reads, decides and commits. ``batch`` and
``batch_plan``: many requests in one commit. ``cache`` and ``feed``: what a process that stays knows of a store.
``paging``: long lists. ``observed``: a store whose calls are counted, printed or measured. ``dry_run``: a store that
keeps what is written, for dry runs. For authors of a backend, ``write_set``: what the writes of a commit mean.
"""
