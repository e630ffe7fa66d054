"""Datastores of typed records.

``protocol``: what a store is, and a store in front of another one. ``transaction``: the one loop that reads, decides
and commits; long lists. ``batch``: many requests in one commit. ``view``: what a process that stays knows of a store,
which ``feed`` keeps true. ``dry_run``: a store that keeps what is written, for dry runs. For authors of a backend,
``write_set``: what the writes of a commit mean.
"""
