"""Reading files wherever they lie: by `os` on this machine, by fsspec behind ``scheme://``. Nothing is written."""
