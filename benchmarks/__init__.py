"""Measurements of netplug beside other plugins: ``python -m benchmarks``.

Ratios against a reference of the same run count; milliseconds are printed for orientation and never judged.
"""
