"""What an Installation means, and what is put onto a host, as values and texts. Pure: nothing is written here.

``document`` (a JSON object as an Installation), ``selection`` (the spellings of the CNI plugin and its IPAM),
``facts`` (what is known of the cluster), ``defaults`` and ``pool_defaults`` (the settings with nothing left open),
``rules`` and ``pool_rules`` (what is refused), ``check`` (all of these in their order, and the warnings), ``overlay``
(a second object over the first), ``problems`` (the error), ``descriptions`` (what each field is for), ``schema`` (the
definition of the kind). ``render`` (what is installed) is made of ``conflist``, ``environment`` and ``pool_plan``.

- ``kubeconfig``: the plugin's access to the orchestrator, as the text of its file
- ``tokens``: the token in it, and when it is renewed
"""
