"""The TensorBoard plugin: a loader and thin WSGI routes."""
