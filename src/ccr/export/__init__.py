"""A fitted model elsewhere: as a torch module, and as an ONNX file."""
