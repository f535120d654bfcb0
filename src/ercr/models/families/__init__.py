"""One file per model family; each registers its adapter when it is loaded."""
