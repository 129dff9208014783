"""What teams earn, and how sure a figure is."""
