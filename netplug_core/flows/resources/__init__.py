"""What changes and reads resources.

``write`` creates, applies, replaces, edits and labels a resource of any kind, ``delete`` deletes one, also a record
that cannot be read; ``read`` reads and watches them; ``outcome`` has the results and errors. ``pools`` has what
creating and deleting a pool needs besides, ``drain`` empties a pool, gives it a successor or divides it.
``cluster`` has the records of which a cluster has one, and its lock; ``migration`` moves all records.
"""
