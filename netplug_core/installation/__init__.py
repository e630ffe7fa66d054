"""What an Installation means, and what is put onto a host, as values and texts. Pure: nothing is written here.

- ``document``: a JSON object as an Installation, the CNI plugin that it selects, and its overlay; ``components``: the
  kinds beside it, and the schemas of all
- ``settings``: the defaults, with nothing left open; ``pools``: what becomes of the pools
- ``rules``: what is refused, and what is seldom meant
- ``daemonset``: what is installed on a node; ``static``: the manifests; ``bundle``: bundles of manifests
- ``cluster``: a cluster as it is found, and how the parts of netplug are in it
- ``installer``: what is put onto one node, in which order; the plugin's token is renewed later, too
- ``static_settings``, ``conversion``: the settings of a static manifest as those of an Installation
"""
