"""Formulations and plans as files of other programs: solvers, servers, simulators."""
