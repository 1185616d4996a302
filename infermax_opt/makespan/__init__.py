"""The makespan problem: requests on clients that share one machine, in bins of prefill and decode.

Pang et al., "Hybrid Offline-online Scheduling Method for Large Language Model Inference Optimization",
sections III to V.
"""
