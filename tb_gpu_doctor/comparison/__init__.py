"""Two runs side by side: summaries small enough to keep, and what changed between them beyond noise."""
