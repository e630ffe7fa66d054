"""Network policy as a pure calculation: what a node has to enforce, from the objects of the cluster.

``model`` has the values: what the calculation hands to the dataplane, and the packets that are judged by it.
``convert`` makes rules of stored policies, ``labelindex`` knows which selectors select what, and ``sets`` who is in
which set. ``resolve`` calculates everything from scratch, ``index`` from changes. ``evaluate`` judges a packet, and
says why.
"""
