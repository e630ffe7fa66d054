"""Selectors: the small language in which a resource says which labelled objects it is for (spec 2.5).

``grammar`` turns text into a tree, or says where and why it cannot. ``evaluate`` holds a tree against labels.
``canonical`` writes a tree in the one spelling that all spellings of it share, and makes its identity of that.
Nothing here knows what carries the labels.
"""
