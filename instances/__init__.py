"""Small instances as files, which come with the package; what else is in this folder does not."""
