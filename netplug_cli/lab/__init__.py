"""The lab: a node and its pods in network namespaces of this machine, attached by the real plugin executables.

- ``commands``: the command line; ``world``: the opened interfaces that a lab acts through
- ``setup``: makes a lab; ``teardown``: removes it; ``status``: inspects it
- ``model``: the parts of a lab, as values; ``record``: the same as JSON
- ``paths``: the paths in a lab's folder; ``folder``: the folder itself, its record and its lock
- ``conflist``: the configuration that a runtime reads, and the input of a plugin; ``runtime``: runs the plugins
- ``store_options``: options to a datastore; ``stores``: the datastores of a lab, as values
- ``store_setup``: prepares a datastore; ``external_cleanup``: removes a lab's records from external servers
- ``servers``: an etcd and an API server of the lab's own; ``processes``: processes that outlive a command
- ``relays``: relays connections to servers outside; ``tcp_relay``: the program that does it
- ``reachability``: tests who reaches whom, with packets
- ``report``: the lines and tables that a person sees
- ``namespaces``: the interface to the kernel
"""
