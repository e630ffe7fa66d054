"""The workload of a call: its names, its endpoint, and what it waits for.

- ``identity``: whose interface it is
- ``endpoint``: its WorkloadEndpoint; ``pod``: what that gets of a pod
- ``gates``: what the start of a pod waits for
"""
