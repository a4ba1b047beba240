"""The tuner."""
