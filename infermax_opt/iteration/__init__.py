"""The iteration problem (BROS): which real-time and best-effort requests one batch takes."""
