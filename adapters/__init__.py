"""The same environments, as other libraries want them."""

from corral.adapters.batch import Batch, BatchStep, Finished, make_batch

__all__ = ["Batch", "BatchStep", "Finished", "make_batch"]
