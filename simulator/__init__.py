"""A causal simulator of GPU training runs that writes what a real profiler would record.

It knows why every kernel started when it did, so its runs come with the truth that
a diagnosis can be held against. Nothing here is shipped with the plugin.
"""
