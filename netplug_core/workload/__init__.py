"""The workload of a call: its names, its endpoint, and what it waits for.

- ``endpoint``: whose interface it is, its names and its WorkloadEndpoint, and what that gets of a pod
- ``gates``: what the start of a pod waits for
"""
