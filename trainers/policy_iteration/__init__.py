"""Policy iteration by forks: decisions are compared by playing each of them on.

``forks`` copies moments exactly and plays the copies on; ``trainer`` learns from what they earned.
"""
