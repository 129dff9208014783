"""The commands of ``corral``, a module each, or one for those of a kind."""
