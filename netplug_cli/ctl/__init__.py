"""The tool ``netplugctl``.

- ``main``: finds the named command and picks the exit status
- ``commands``: one module per subject, with its reports; each is loaded when it is named
- ``session``: what commands act through
- ``documents``, ``yaml_documents``: files that are read; ``editor``: the editor of ``edit``
- ``arguments``, ``durations``, ``global_options``, ``help_texts``: the command line; ``errors``: what is wrong with it
- ``tables``, ``outputs``, ``reports``, ``simulation_report``: how results are rendered
- ``manifests``: the manifests that the package ships
"""
