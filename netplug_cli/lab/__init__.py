"""The lab: nodes and their pods in network namespaces of this machine, attached by the real plugin executables.

- ``commands``: the command line; ``world``: the opened interfaces that a lab acts through
- ``setup``: makes a lab, and removes it; ``store_setup``: prepares its datastore
- ``model``: the parts of a lab and its paths, as values; ``folder``: the folder itself, its record and its lock
- ``runtime``: the configuration that a runtime reads, and how the plugins are run
- ``processes``: processes that outlive a command, and relays to servers; ``tcp_relay``: the program that relays
- ``report``: who reaches whom, tested with packets, and the lines and tables that a person sees; ``pods``: the same in
  a cluster
"""
