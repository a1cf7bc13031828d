"""CorVer in verl 0.9: the reward of a completion, or of each of its tokens.

The reward of whole completions is one setting, plus the arguments of the scorer::

    python -m verl.trainer.main_ppo \\
        reward.custom_reward_function.path=pkg://corver.verl \\
        +reward.custom_reward_function.reward_kwargs.plugin=first.wasm \\
        +reward.custom_reward_function.reward_kwargs.index=INDEX \\
        +reward.custom_reward_function.reward_kwargs.extractor=MODEL …

Credit per token, as the paper has it, needs an agent loop and an advantage estimator too; ``python -m corver.verl`` prints
all the settings::

    python -m verl.trainer.main_ppo $(python -m corver.verl) …

====================  ==================================================================================
``reward.py``         `compute_score`: verl calls it for one completion at a time
``agent_loop.py``     passes it the token ids, and puts a reward on each token
``advantage.py``      the advantage estimator ``corver``: the paper's, over groups of completions
``plugin.py``         loaded by verl in each of its processes (entry point ``verl.plugins``)
====================  ==================================================================================

docs/trainers.md lists the other settings. This module does not import verl.
"""

from pathlib import Path

from corver.verl.reward import compute_score

__all__ = ["AGENT_LOOP_CONFIG", "compute_score"]

#: File of the agent loop ``corver``, for ``agent_loop_config_path``.
AGENT_LOOP_CONFIG = Path(__file__).with_name("agent_loop.yaml")
