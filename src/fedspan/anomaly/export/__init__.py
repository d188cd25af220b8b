"""Detectors as files that score without fedspan: plain arrays for gateways, and ONNX."""
