"""The HTTP protocol with limits on slow, large and too many clients."""
