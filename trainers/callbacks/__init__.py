"""Observe a run during training: callbacks, metrics, stop criteria and sinks.

See docs/callbacks.md."""
