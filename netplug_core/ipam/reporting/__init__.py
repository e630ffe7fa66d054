"""Reports about what is stored: utilization, the collector's metrics, and what does not fit together, with repairs."""
