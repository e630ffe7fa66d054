"""Changing, reading and labelling resources, and the two records of the cluster itself."""
