"""What the node process does for its own node.

- ``registration``: its Node in the datastore, and the file with its name
- ``plugin_token``: the token with which the plugin reaches the API server
"""
