"""A report as JSON, JUnit XML and Markdown. The table for a terminal is the command line's."""
