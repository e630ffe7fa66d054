"""Selectors: the small language in which a resource selects labelled objects.

``grammar`` turns text into a tree, or says where and why it cannot. ``evaluation`` applies a tree to labels.
``canonical`` writes equal trees as the same text, and derives an identity from that text.
"""
