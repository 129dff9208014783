"""Third-party PettingZoo environments with the interface of Batch."""
