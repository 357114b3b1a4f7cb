"""Numbers only: no files, no images, no command line."""
