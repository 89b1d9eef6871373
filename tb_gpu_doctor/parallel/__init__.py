"""Many files at once: decoding and analysing in processes of their own, within the cores and the memory there are."""
