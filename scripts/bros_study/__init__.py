"""Real-time beside best-effort requests: schedulers and bounds by rate, and the figures of BROS again."""
