"""The datastore ``etcdv3``: an etcd cluster, reached over gRPC.

- ``discovery``: the members in DNS
- ``tls``: certificates, keys and the user
- ``operations``: requests, replies and failures of one call, as values
- ``messages``, ``rpc``: etcd's protocol, spoken to one member
- ``client``: calls to the cluster, with retries on other members
- ``layout``: the key of each record
- ``datastore``: the datastore, its revisions and watches; ``hookimpls`` opens it
"""
