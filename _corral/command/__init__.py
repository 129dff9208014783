"""The package ``corral_command``: entry point of the ``corral`` command.

It stands outside the package ``corral``, because ``import corral`` registers its environments with
Gymnasium and PettingZoo. In the process of the command (this module is loaded), the registration
waits until a command uses an environment, so that ``corral --help`` imports neither library.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    from corral.cli import main as run  # after this module: see above

    run()
