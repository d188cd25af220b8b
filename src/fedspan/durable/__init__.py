"""Append-only files: one module for locks, chains of digests and torn tails."""
