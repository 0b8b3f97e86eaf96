"""Demo content: headlines, generated readers, simulated visitors of the study, and what `lcb demo` shows."""
