"""Policies as files that run without corral: NumPy, ONNX."""
