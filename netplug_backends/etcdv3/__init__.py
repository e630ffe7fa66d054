"""The datastore ``etcdv3``: an etcd cluster, reached over gRPC.

``messages`` and ``rpc`` speak etcd's protocol to one member; ``endpoints``, ``discovery`` and ``tls`` say which members
there are and how they are trusted; ``client`` calls whichever answers. ``layout`` says where a record stands and what
it looks like there, ``watching`` and ``datastore`` make a store of it; ``hookimpls`` offers it.
"""
