"""Converters from published weight formats to the ONNX graphs that the reference units run. No torch."""
