"""Principal component analysis: exact, iterative, one-shot, by consensus, and resilient to malicious sites."""
