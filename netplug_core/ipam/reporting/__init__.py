"""Reports about what is stored: utilization, metrics, plans of drains, and what does not fit together, with repairs."""
