"""What the commands do, without a command line: a request in, files out."""
