"""The datastore ``sqlite``: one file on one host, many processes, no server.

``schema`` makes and checks the file, ``datastore`` reads and commits; ``hookimpls`` offers it.
"""
