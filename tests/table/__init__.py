"""Tables and archives."""
