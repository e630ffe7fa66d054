"""The client of the API server.

- ``access``: finds the server and our credentials; ``kubeconfig``, ``kubeconfig_entry``, ``credentials``,
  ``exec_plugin`` and ``auth_provider`` read what a configuration names
- ``messages``: requests and replies as values
- ``transport``: one connection
- ``ratelimit``: how many requests may be sent
- ``apiclient``: sends requests, with retries and errors
- ``objects``: reads objects and collections
- ``watch``: events of several collections
"""
