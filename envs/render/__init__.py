"""Drawing: a canvas, the parts of boards, and a window to show them in."""
