"""The outputs of ``get``: ``formats`` reads ``-o``, and knows all of them.

``columns`` has custom columns, ``templates`` has ``jsonpath``, and ``paths`` has the paths of both.
"""
