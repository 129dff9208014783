"""Pages, charts and texts of reports."""
