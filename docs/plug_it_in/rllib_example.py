"""dfaas_v0 in RLlib, with your own PPOConfig: python docs/plug_it_in/rllib_example.py"""

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module import RLModuleSpec

import corral
from corral.adapters.rllib import RLlibEnv
from corral.adapters.rllib.module import MaskedRLModule

GAME = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}


def learn(steps, seed):
    """Train one policy for all; what plays: observations of all agents -> actions, greedy."""
    env = {"env": "dfaas_v0", "env_kwargs": GAME}
    algorithm = (
        PPOConfig()
        .environment(RLlibEnv, env_config=env, disable_env_checking=True)  # it ignores masks
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .multi_agent(policies={"team"}, policy_mapping_fn=lambda agent, episode, **_: "team")
        .rl_module(rl_module_spec=RLModuleSpec(MaskedRLModule, model_config={"net_arch": (64, 64)}))
        .training(train_batch_size_per_learner=768, minibatch_size=576, num_epochs=6, gamma=0.5)
        .training(lr=[[0, 4e-3], [steps, 0.0]], lambda_=0.95, clip_param=0.2, use_kl_loss=False)
        .training(vf_clip_param=float("inf"), vf_loss_coeff=0.5, grad_clip=0.5)
        .debugging(seed=seed)
        .build_algo()
    )
    played = 0
    while played < steps:
        played = algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"]
    module = algorithm.get_module("team")
    algorithm.stop()

    def play(obs):
        keys = ("observation", "action_mask")
        batch = {k: torch.stack([torch.as_tensor(each[k]) for each in obs.values()]) for k in keys}
        logits = module.forward_inference({"obs": batch})["action_dist_inputs"]
        return dict(zip(obs, logits.argmax(dim=-1).tolist(), strict=True))

    return play


if __name__ == "__main__":
    play, total = learn(10_000, seed=0), 0.0
    env = corral.make("dfaas_v0", **{**GAME, "rows": (2822, 4032)})  # days that it has not seen
    obs, _ = env.reset(seed=0)
    while env.agents:
        obs, rewards, *_ = env.step(play(obs))
        total += sum(rewards.values())
    print(f"team return {total:.2f}")
