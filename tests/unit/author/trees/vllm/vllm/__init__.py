raise ImportError("sources to read, not a package to import")
