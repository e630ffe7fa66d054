"""The node process: serves the calls of the executables over a Unix socket, on libraries and stores that stay open.

- ``listening``: the socket, by path or from systemd; it imports nothing of weight, and is there before anything else
- ``signals``: what ends the process
- ``reading``: one request, as it comes; ``peer``: who sends it
- ``server``: accepts connections and reads requests, in one thread
- ``calls``: the bounded queue of requests, and how one is served; ``workers``: the threads that do
- ``shared``: what many calls use; ``datastores``: those that are open, measured
- ``periodic``: threads that do the same again and again; ``replay``: release records; ``filtering``: packet filter
- ``metrics``: what is counted; ``health``: whether the process lives and is ready; ``metrics_file``
  publish both, and ``supervision`` notifies systemd through ``service_manager``, as ``operations`` says
- ``process``: the order in which all of it begins and ends
"""
