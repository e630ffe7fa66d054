"""The CNI protocol: text and variables in, text and an exit status out.

``dispatch`` runs one invocation and is what the executables call. ``request`` turns the environment and
standard input into a :class:`~netplug_core.cni.request.CNIRequest`. ``versions`` has one row per version of the
specification. ``result`` has the values an ADD answers with, and their shape in each version. ``members``
reads JSON that others wrote. ``errors`` writes the error object. Nothing here reads the process's environment,
its input or the kernel: they are handed in.
"""
