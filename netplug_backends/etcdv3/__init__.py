"""The datastore ``etcdv3``: an etcd cluster, reached over gRPC.

- ``discovery``, ``resolver``: the members in DNS and their addresses
- ``tls``: certificates, keys and the user
- ``operations``, ``failures``: requests, replies and failures of one call, as values
- ``messages``, ``rpc``: etcd's protocol, spoken to one member
- ``client``: calls to the cluster, with retries on other members
- ``layout``, ``revisions``: the key and the revision of each record
- ``datastore``, ``watch``: the datastore
- ``factory``, ``hookimpls``: opening it
"""
