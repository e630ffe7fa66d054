"""The allocator's machine: nodes, people and a collector over one store that suffers every mishap, and what must hold.

``machine`` has the rule-based machine that a test module runs, and ``bench`` the same world without chance, to act in
step by step. What can be done is a value (``acts``; ``draws`` has strategies for them), and so is what goes wrong on
the way (``line``). After every commit the stored state (``stored``) is judged by ``laws``, after every act by a
``ledger`` of who must hold what and by an ``oracle`` that says how many addresses a request must get.
"""
