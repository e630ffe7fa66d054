"""The client of the API server: kubeconfig, credentials, transport, rate limit, watches."""
