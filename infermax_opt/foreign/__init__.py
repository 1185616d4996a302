"""Files of other programs: runs of theirs are read, request by request; plans and models are written."""
