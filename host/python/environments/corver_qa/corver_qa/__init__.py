"""Questions for verifiers, rewarded by CorVer: ``--env.taskset.id corver-qa``."""

from corver_qa.taskset import CorverTaskset

__all__ = ["CorverTaskset"]
