"""Policy iteration by forks: decisions are compared by playing each of them on.

``compared`` tries other actions on copies of a moment that meet the same future; ``record`` says
what is learned from that, and ``trainer`` plays. ``forks`` copies moments for the doctor, whose
copies draw their actions and may meet other futures.
"""
