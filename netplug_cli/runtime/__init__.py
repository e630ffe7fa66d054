"""The process half of the frame for loops; ``netplug_core.reconcile.controller`` has its rules.

- ``controllers``: runs controllers, in threads
- ``election``: which of several processes acts
- ``feed``: keeps a view of a datastore true
- ``signals``: the signals that end a process
"""
