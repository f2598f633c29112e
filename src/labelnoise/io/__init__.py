"""Features, labels, images, texts and results in files; nothing that a file names is ever run."""
