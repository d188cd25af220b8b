"""Few-shot regression: AltGDmin, Byz-AltGDmin, and new tasks from few rows."""
