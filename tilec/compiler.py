"""The whole compiler as one call: `.tile` file to `.cu` text."""
