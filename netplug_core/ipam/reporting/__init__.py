"""Reports about stored blocks: the utilization of pools, and the collector's metrics. Nothing here changes anything."""
