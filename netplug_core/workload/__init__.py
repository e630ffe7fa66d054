"""The workload a call is about: who it is (``identity``) and the WorkloadEndpoint that stands for it (``endpoint``)."""
