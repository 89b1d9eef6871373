"""Replay: what started when and why, and when it would have started had something taken less time.

`graph` builds the dependencies of one file's steps from its columns, `paths` follows them (the longest path decides
when each event ends), `what_if` changes times in them and says how long a step would take.
"""
