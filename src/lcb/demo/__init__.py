"""Demo content: a news front with headlines, generated readers, and the story `lcb demo` tells."""
