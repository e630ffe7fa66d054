"""Where typed records are kept.

What a store is (``interface``) and the one loop that reads, decides and commits (``loop``); for those who write a
backend, what a commit's writes mean (``commits``) and how values become bytes (``encoding``).
"""
