"""The tool ``netplugctl``.

- ``main``: finds the named command or its help, and picks the exit status
- ``commands``: one module per subject, with its reports; each is loaded when it is named
- ``session``: what commands act through
- ``documents``, ``yaml_documents``: files that are read, and the manifests that the package ships
- ``editor``: the editor of ``edit``
- ``arguments``, ``global_options``: the command line; ``errors``: what is wrong with it
- ``tables``, ``outputs``, ``reports``, ``simulation_report``: how results are rendered
"""
