"""Files: instances, schedules, results, traces."""
