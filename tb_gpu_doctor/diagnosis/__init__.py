"""From numbers to findings: rules, thresholds, and what they conclude, in no language yet."""
