"""The client of the API server.

- ``access``: finds the server and our credentials in kubeconfigs and elsewhere; ``credentials`` has the values, and
  ``exec_plugin`` runs the program or asks the provider that a kubeconfig names
- ``apiclient``: sends requests, with retries, errors and a limit of how many; requests and replies as values
- ``objects``: reads objects and collections, and events of several collections
"""
