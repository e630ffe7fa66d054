"""The map of ``ipam map``: ``drawing`` has its words and bars, which ``text``, ``svg`` and ``html`` render.

``bars`` has the picture of a bar and the colours, for SVG and HTML alike.
"""
