"""The parts of ``netplugctl support bundle``: where each is read, and how the archive is written.

``node_parts`` reads files and the node process of this machine, ``store_parts`` the datastore, ``archive`` writes.
"""
