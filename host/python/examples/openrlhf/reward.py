"""CorVer's reward for OpenRLHF: ``--reward.remote_url reward.py``."""

from corver.openrlhf import reward_function

reward_func = reward_function(plugin="first.wasm", index="demo", extractor="demo")
