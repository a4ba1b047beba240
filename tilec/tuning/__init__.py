"""The tuner: candidates measured one by one in a child process, what was found kept beside the source."""
