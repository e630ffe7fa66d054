"""One module per kind that stands for an object of the API server, and the schemas of custom resources."""
