"""The parts of `bench/verify.py`: each returns an Evidence."""
