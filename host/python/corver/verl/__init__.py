"""CorVer in verl 0.9: the reward of a completion, or of each of its tokens.

The reward of whole completions is one setting, with the scorer's arguments beside it::

    python -m verl.trainer.main_ppo \\
        reward.custom_reward_function.path=pkg://corver.verl \\
        +reward.custom_reward_function.reward_kwargs.plugin=first.wasm \\
        +reward.custom_reward_function.reward_kwargs.index=INDEX \\
        +reward.custom_reward_function.reward_kwargs.extractor=MODEL …

Credit per token, as the paper has it, needs an agent loop and an advantage estimator too; ``python -m corver.verl`` prints
all the settings::

    python -m verl.trainer.main_ppo $(python -m corver.verl) …

====================  ==================================================================================
``reward.py``         `compute_score`: verl asks it for one completion at a time
``agent_loop.py``     hands it the token ids, and puts a reward on each token
``advantage.py``      the advantage estimator ``corver``: the paper's, over groups of completions
``plugin.py``         what verl loads in each of its processes (entry point ``verl.plugins``)
====================  ==================================================================================

docs/integrations.md says what else to set. This module does not import verl.
"""

from pathlib import Path

from corver.verl.reward import compute_score

__all__ = ["AGENT_LOOP_CONFIG", "compute_score"]

#: The agent loop ``corver``, as ``agent_loop_config_path`` wants it: a file.
AGENT_LOOP_CONFIG = Path(__file__).with_name("agent_loop.yaml")
