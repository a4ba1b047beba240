"""Random programs on the emulator."""
