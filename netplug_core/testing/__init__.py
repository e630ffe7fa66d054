"""What holds every implementation of an interface to its text, ours and a stranger's.

A clock that is moved by hand (``clock``), Hypothesis strategies (``strategies``), and one conformance suite per
interface. That of datastores is a rule-based machine (``datastore``) and the same text as examples
(``datastore_checks``), over ``bench``. Needs the extra ``netplug[testing]``; nothing that ships imports it.
"""
