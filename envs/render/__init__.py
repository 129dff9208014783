"""Rendering: a canvas, the parts of boards, videos, and a window."""
