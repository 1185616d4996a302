"""The workloads of the Aladdin paper under limits from arrival, on machines that run batch by batch."""
