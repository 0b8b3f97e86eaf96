"""The pages people look at: files in `static/` served as they are, the headlines, and the words a page needs."""
