"""Policy iteration with forks: decisions are compared by simulating each of them.

``compared`` tries other actions on copies of a state that have the same future. ``record`` defines
the loss, and ``trainer`` plays. ``forks`` copies states for the doctor; its copies sample their
actions and may have different futures.
"""
