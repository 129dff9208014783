"""The commands of ``corral``. Each module holds one command or a few related ones."""
