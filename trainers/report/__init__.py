"""Pages, plots and texts that say what was found."""
