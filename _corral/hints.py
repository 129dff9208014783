"""Suggestions for unknown names, shared by the command line and Python.

A name is looked up among the spellings of other libraries (Stable-Baselines3 and its Zoo, CleanRL,
RLlib, TorchRL, the MAPPO reference code) before similar spellings are compared. For example,
``total_timesteps`` is most similar to ``n_steps``, but means ``steps``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["answer", "hint", "listed", "meant", "no_attribute", "spelled_otherwise"]

SPELLINGS: Mapping[str, str] = {
    # arguments of train and options of commands
    "steps": "total_timesteps timesteps n_timesteps num_timesteps total_steps train_timesteps "
    "env_steps num_env_steps max_timesteps training_steps total_env_steps max_steps frames "
    "total_frames max_n_frames timesteps_total num_train_steps",
    "trainer": "algo algorithm alg method model learner",
    "env": "env_id environment game gym_id env_name scenario task",
    "game": "env env_id environment env_name",
    "env_kwargs": "env_config env_args make_kwargs env_params kwargs",
    "seed": "random_seed rng_seed rng seeds",
    "out": "log_folder log_dir logdir output output_dir outdir out_dir save_dir save_path save "
    "run_dir results_dir local_dir storage_path folder model_dir save_folder experiment_dir dir "
    "file filename video gif record record_video_folder exp_name experiment_name run_name",
    "checkpoint_every": "save_freq save_interval checkpoint_freq checkpoint_frequency "
    "checkpoint_interval save_every",
    "keep": "keep_checkpoints keep_checkpoints_num num_to_keep save_total_limit",
    "resume": "load trained_agent restore continue checkpoint load_model resume_from "
    "from_checkpoint load_path model_path",
    "held_out": "test_split test_size split holdout",
    "validation": "validation_split validation_size val_split val_size dev_split valid",
    "policies": "share_policy share_policies parameter_sharing share_parameters shared share_param "
    "policy player players policy_mapping_fn policy_mapping multiagent multi_agent",
    "policies_to_train": "train_policies policies_to_learn",
    "opponent": "opponents enemy enemies",
    "opponents": "opponent enemy enemies",
    "progress": "progress_bar verbose quiet",
    "episodes": "n_episodes num_episodes n_eval_episodes eval_episodes evaluation_duration",
    "sampled": "stochastic sample",
    "greedy": "deterministic",
    "ansi": "text ascii terminal",
    "fps": "framerate speed frame_rate",
    "pixels": "width size resolution",
    "overwrite": "force replace exist_ok",
    "arg": "args env_kwargs env_config env_args make_kwargs env_params",
    # functions of corral, by the names of commands and of other libraries
    "diagnose": "doctor",
    "check_env": "check env_checker",
    "load_run": "load load_model load_policy from_checkpoint load_from_checkpoint",
    # settings
    "num_envs": "n_envs n_env envs num_env num_parallel_envs num_environments n_rollout_threads "
    "copies env_num num_envs_per_worker num_envs_per_env_runner parallel_envs "
    "train_batch_size_per_learner train_batch_size",
    "envs_per_runner": "num_envs n_envs num_envs_per_worker num_envs_per_env_runner",
    "workers": "num_workers n_workers n_jobs num_cpu num_cpus n_cpus num_procs num_processes",
    "runners": "num_env_runners num_runners num_workers n_workers workers num_rollout_workers",
    "cpus": "num_cpus n_cpus num_cpu workers num_workers n_jobs",
    "n_steps": "num_steps rollout_length rollout_steps rollout_fragment_length nsteps n_step "
    "unroll_length steps_per_rollout rollout_size horizon frames_per_batch step_per_collect "
    "episode_length rollouts num_rollout_steps train_batch_size_per_learner train_batch_size",
    "train_batch_size": "n_steps num_steps rollout_length train_batch_size_per_learner "
    "frames_per_batch",
    "n_epochs": "update_epochs num_epochs epochs ppo_epoch ppo_epochs num_sgd_iter k_epochs "
    "noptepochs n_epoch repeat_per_collect learning_epochs",
    "batch_size": "minibatch_size mini_batch_size sgd_minibatch_size n_minibatches num_minibatches",
    "n_minibatches": "num_minibatches num_mini_batch num_mini_batches minibatches nminibatches "
    "mini_batches batch_size minibatch_size mini_batch_size sgd_minibatch_size",
    "learning_rate": "lr step_size actor_lr policy_lr critic_lr lr_actor lr_critic pi_lr vf_lr",
    "anneal": "anneal_lr lr_decay use_linear_lr_decay linear_lr_decay",
    "gamma": "discount discount_factor discount_rate",
    "gae_lambda": "lambda lambda_ lam gae_lam lmbda td_lambda gae",
    "clip_range": "clip_coef clip_param clip cliprange clip_eps clip_epsilon clip_ratio eps_clip "
    "epsilon_clip ratio_clip",
    "clip_range_vf": "vf_clip_param clip_vloss clip_value value_clip vf_clip clip_vf "
    "clip_range_value clip_predicted_values",
    "ent_coef": "entropy_coef entropy_coeff entropy_coefficient entropy_cost entropy_bonus "
    "ent_coeff entropy_beta ent_weight entropy_loss_scale entropy_coeff_schedule "
    "entropy_coef_schedule ent_coef_schedule",
    "ent_coef_end": "final_entropy_coef entropy_coef_end entropy_coeff_schedule "
    "entropy_coef_schedule ent_coef_schedule",
    "vf_coef": "vf_loss_coeff value_loss_coef value_coef critic_coef value_loss_coeff vf_coeff "
    "vf_loss_coef value_loss_weight",
    "max_grad_norm": "grad_clip clip_grad clip_grad_norm max_norm gradient_clip grad_norm_clip "
    "clip_grad_val grad_clip_norm",
    "kl_coef": "kl_coeff kl_penalty kl_beta",
    "target_kl": "desired_kl kl_stop max_kl kl_limit kl_threshold",
    "net_arch": "hidden_size hidden_sizes hidden_dim hidden_dims hidden_units hidden_layers "
    "hiddens fcnet_hiddens num_cells mlp_hidden_sizes layers network policy_kwargs layer_n "
    "network_size hidden_layer_sizes units",
    "cnn_arch": "conv_filters cnn_filters conv_layers cnn_layers",
    "cnn_layers": "conv_filters cnn_filters conv_layers cnn_arch",
    "activation": "activation_fn fcnet_activation act activation_function nonlinearity",
    "memory": "lstm gru rnn recurrent lstm_hidden_size lstm_cell_size use_lstm rnn_hidden_size "
    "use_recurrent_policy use_rnn hidden_state",
    "action_std": "log_std_init init_std initial_std std",
    "normalize_values": "norm_value popart use_popart use_valuenorm normalize_returns norm_reward "
    "normalize_reward value_normalization",
    "critic_input": "centralized_critic centralised_critic use_centralized_v share_obs "
    "central_critic",
    "agent_id": "add_agent_id use_agent_id agent_ids",
    "device": "cuda gpu use_gpu use_cuda num_gpus",
    "vec_env": "vec_env_class vec_env_cls",
    # arguments of environments
    "max_cycles": "max_episode_steps episode_length time_limit max_ep_len horizon max_steps",
    "queue": "queue_size queue_length max_queue queue_capacity buffer",
    # environments, trainers, commands
    "sb3_ppo": "ppo sb3 stable_baselines3 ppo2",
    "sb3_maskable_ppo": "maskable_ppo maskableppo masked_ppo ppo_mask",
    "sb3_dqn": "dqn masked_dqn maskeddqn q_learning ddqn double_dqn",
    "sb3_a2c": "stable_baselines3_a2c",
    "benchmarl_vdn": "vdn",
    "benchmarl_qmix": "qmix",
    "benchmarl_iql": "iql",
    "benchmarl_masac": "masac sac",
    "mappo": "ppo ma_ppo multi_agent_ppo",
    "ippo": "ppo independent_ppo",
    "rllib_ppo": "rllib ray",
    "dfaas_v0": "faas serverless load_balancing",
    "tictactoe_v0": "ttt mnk xo noughts_and_crosses",
    "rps_v0": "rock_paper_scissors roshambo",
    "evaluate": "eval test score judge enjoy",
    "duel": "tournament versus vs match league elo round_robin head_to_head",
    "train": "learn fit run resume",
    "watch": "play render view show video",
    "replay": "simulate",
    "envs": "environments list env list_envs",
    "trainers": "algorithms algos",
    "trace": "traces data",
    "check": "validate verify check_env",
}
"""Name in corral -> names in other libraries."""

NOTES: Mapping[str, str] = {
    "env_kwargs": "Arguments of an environment are options, such as {queue} 50.",
    "num_agents": "The environment defines its agents; some environments have an argument for it.",
    "eval_freq": "Evaluation is a separate step: corral evaluate RUN, or corral.evaluate(run).",
    "tensorboard_log": "A run's folder always holds progress.csv, and TensorBoard files if "
    "TensorBoard is installed.",
    "callback": "Give callbacks as callbacks=[...] of corral.train, or corral train --callback "
    "FILE.py:NAME.",
    "going_on": "Resume a run with corral.resume(run), or corral train --resume RUN.",
    "normalize_advantage": "Advantages are always normalized.",
    "render": "corral watch RUN shows an episode; with {out} FILE.gif it writes a clip.",
    "deterministic": "A run plays greedily, unless sampled play was far better at the end of its "
    "training; an evaluation plays both.",
    "verbose": "Progress is printed on stderr; progress.csv in the run's folder has the details.",
    "n_minibatches": "A rollout, {num_envs} times {n_steps}, is split into {n_minibatches} parts.",
    "vf_coef": "mappo and ippo need no weight for the value loss: actor and critic share no "
    "parameters, and Adam does not depend on the scale of a loss.",
    "ent_coef_end": "A schedule of the entropy weight: {ent_coef} 0:0.1,20000:0 (env steps:value), "
    "or {ent_coef} 0.1 and {ent_coef_end} 0 over the whole run.",
    "lr_schedule": "A schedule: {learning_rate} 0:1e-3,20000:1e-4 (env steps:value), or "
    "{learning_rate} linear:1e-3, which falls to 0.",
    "soft_horizon": "An episode ends after max_cycles, an argument of the environment. corral "
    "check ENVIRONMENT --learnable tests whether the choices in such an episode matter.",
    "rms_prop": "The optimizer is Adam.",
    "hyperparams": "Settings are options, such as {gamma} 0.9.",
    "optimize": "corral tune searches settings, for example --search gamma=0.9..0.999.",
    "load_best": "Name a checkpoint together with the run: RUN@best.",
    "load_checkpoint": "Name a checkpoint together with the run: RUN@2048.",
    "no_render": "corral watch RUN {ansi} prints an episode as text, {out} FILE.gif writes a clip.",
}
"""Notes on names without a counterpart in corral, and on names that work differently there."""

NOTED: Mapping[str, str] = {
    "env_kwargs": SPELLINGS["env_kwargs"],
    "num_agents": "n_agents nagents agents num_players n_players",
    "eval_freq": "eval_every eval_interval evaluation_interval eval_envs n_eval_envs "
    "n_eval_episodes eval_episodes evaluate eval_env eval_callback",
    "callback": "callbacks on_step on_rollout_end",
    "going_on": SPELLINGS["resume"] + " resume reset_num_timesteps",
    "normalize_advantage": "normalize_advantages norm_adv norm_advantage advantage_normalization",
    "tensorboard_log": "tensorboard tb_log tensorboard_dir track wandb use_wandb logger wandb_mode "
    "wandb_project_name wandb_entity log_interval log_freq log_every",
    "render": "render_mode capture_video record_video video render_freq",
    "deterministic": "greedy",
    "verbose": "progress_bar verbosity log_level debug quiet progress",
    "n_minibatches": SPELLINGS["n_minibatches"],
    "vf_coef": SPELLINGS["vf_coef"],
    "hyperparams": "hyperparameters hyper_params hparams params conf_file config_file yaml_file",
    "optimize": "optimize_hyperparameters tune n_trials n_startup_trials sampler pruner study_name",
    "load_best": "load_best_model best best_model",
    "load_checkpoint": "checkpoint load_last_checkpoint checkpoint_path",
    "no_render": "headless",
    "ent_coef_end": "entropy_coeff_schedule entropy_coef_schedule ent_coef_schedule",
    "lr_schedule": "learning_rate_schedule lr_scheduler",
    "soft_horizon": "no_done_at_end",
    "rms_prop": "optimizer optimizer_class optim adam_eps weight_decay opti_eps",
}


def hint(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the names of ``known`` close to ``name``, else "."."""
    matches = meant(name, known)
    return f"; did you mean {listed(map(repr, matches), 'or')}?" if matches else "."


def answer(name: str, known: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """Return ``hint``; for a name without a counterpart, return a note instead of a weak guess.

    ``spell`` converts a name to the user's spelling: to an option, or unchanged.
    """
    names = list(known)
    same = spelled_otherwise(name, names)
    key = _noted(name)
    if key is None or (same and _letters(key) not in map(_letters, same)):
        return hint(name, names)
    text = re.sub(r"\{(\w+)\}", lambda match: spell(match[1]), NOTES[key])
    return f"{hint(name, same)} {text}"


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Return the likely meanings of ``name`` in ``known``: other spellings, else the nearest."""
    names = sorted(known)
    if len(name) > 100:
        return []
    if same := spelled_otherwise(name, names):
        return same
    if near := _nearest(name, names):
        return near
    letters = _letters(name)
    longer = [candidate for candidate in names if _letters(candidate).startswith(letters)]
    return longer[:1] if len(letters) > 2 else []


def spelled_otherwise(name: str, known: Iterable[str]) -> list[str]:
    """Return the names equal to ``name`` up to case and dashes, else the synonyms of ``name``."""
    names, letters = list(known), _letters(name)
    same_letters = [candidate for candidate in names if _letters(candidate) == letters]
    return same_letters or [
        candidate for candidate in names if letters in OTHERS.get(_letters(candidate), ())
    ]


def _nearest(name: str, names: list[str]) -> list[str]:
    """Return the name most similar to ``name``, directly or by one of its synonyms."""
    lower = {candidate.lower().removeprefix("--"): candidate for candidate in names}
    name = name.lower().removeprefix("--")
    near = difflib.get_close_matches(name, lower, n=1)
    ratio = difflib.SequenceMatcher(None, name, near[0]).ratio() if near else 0.0
    by_synonym = {
        synonym: candidate for candidate in names for synonym in OTHERS.get(_letters(candidate), ())
    }
    synonym = difflib.get_close_matches(_letters(name), by_synonym, n=1, cutoff=max(0.85, ratio))
    return [by_synonym[synonym[0]]] if synonym else [lower[candidate] for candidate in near]


def _noted(name: str) -> str | None:
    """Return the key of the note about a name, or None."""
    letters = _letters(name)
    for key, synonyms in NOTED.items():
        if letters in map(_letters, [key, *synonyms.split()]):
            return key
    return None


def no_attribute(owner: object, name: str, instead: Mapping[str, str]) -> Any:
    """Raise the error for an attribute that an object does not have, for its ``__getattr__``.

    ``instead`` has names of other libraries, and what to use instead. A property that raised an
    AttributeError raises it again, because Python hides it before it calls ``__getattr__``.
    """
    if hasattr(type(owner), name):
        return object.__getattribute__(owner, name)
    text = next((f"; {text}" for names, text in instead.items() if name in names.split()), "")
    message = f"{type(owner).__name__!r} object has no attribute {name!r}{text}"
    raise AttributeError(message, name=name, obj=owner)


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return "a", "a and b", "a, b and c"."""
    *head, tail = words
    return f"{', '.join(head)} {last} {tail}" if head else tail


def _letters(name: str) -> str:
    """Return a name without case, punctuation, and a version at its end."""
    return re.sub(r"[-_]v\d+$|[^a-z0-9]", "", name.lower())


OTHERS = {
    _letters(name): set(map(_letters, synonyms.split())) for name, synonyms in SPELLINGS.items()
}
