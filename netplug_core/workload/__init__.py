"""The workload of a call: its names (``identity``) and its WorkloadEndpoint (``endpoint``)."""
