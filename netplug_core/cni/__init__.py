"""The CNI protocol: text and variables in, text and an exit status out.

``dispatch`` has one invocation of an executable as a value, answers VERSION, and has one row per version of the
specification. ``request`` turns the environment and standard input into a
:class:`~netplug_core.cni.request.CNIRequest`. ``result`` has the values of an ADD's result, and their JSON in each
version, and the error object. Nothing here reads the environment, the input or the kernel: they are
arguments.
"""
