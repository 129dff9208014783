"""What looks on while a run is trained: callbacks, metrics, stop criteria, sinks. See the manual,
docs/callbacks.md."""
