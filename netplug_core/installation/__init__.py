"""What is put onto a host, as values and texts. Pure: nothing is written here.

- ``kubeconfig``: the plugin's access to the orchestrator, as the text of its file
- ``tokens``: the token in it, and when it is renewed
"""
