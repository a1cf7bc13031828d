"""Prints the settings of verl for CorVer's reward of each token, one per line."""

from corver.verl import AGENT_LOOP_CONFIG

print("reward.custom_reward_function.path=pkg://corver.verl")
print("actor_rollout_ref.rollout.agent.default_agent_loop=corver")
print(f"actor_rollout_ref.rollout.agent.agent_loop_config_path={AGENT_LOOP_CONFIG}")
print("algorithm.adv_estimator=corver")
