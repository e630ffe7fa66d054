"""The node process: serves the calls of the executables over a Unix socket, on libraries and stores that stay open.

- ``listening``: the socket, by path or from systemd; it imports nothing of weight, and is there before anything else
- ``server``: accepts connections and reads requests in one thread; the threads that serve them; who sends a request
- ``calls``: the bounded queue of requests, and how one is served
- ``stores``: the datastores that stay open, shared by calls, and their caches; credentials as they were last read
- ``tasks``: controllers of a node: registration, release records, missing plugins, the plugin's token
- ``routing``, ``bgp``, ``packet_filter``: those that connect a node with others: routes, tunnels, BGP, NAT and guards
- ``metrics``: what is counted, and the file that publishes it
- ``process``: health, systemd, and the order in which all of it begins and ends
"""
