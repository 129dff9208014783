"""What environments are drawn with: a canvas, and a window to show it in."""
