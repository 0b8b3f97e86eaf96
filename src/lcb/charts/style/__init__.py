"""The look of all charts: palette, axes, number formats, labels."""
