"""What changes and reads resources, one module per verb.

``create``, ``apply``, ``replace``, ``edit``, ``delete``, ``validate``, ``preview``, ``read`` and ``watch`` serve any
kind. ``change`` has what the first four have in common, ``outcome`` their results and errors. ``labels`` sets and
removes a label. ``pools`` has what creating and deleting a pool needs besides. ``cluster`` has the two records of which
a cluster has one; ``overview`` reads the utilization of pools and the state of an address. ``damaged`` deletes records
that cannot be read. ``drain`` empties a pool and deletes it, ``resize`` gives it a successor first.
"""
