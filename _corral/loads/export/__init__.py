"""Export policies as files that run without corral: NumPy, ONNX."""
