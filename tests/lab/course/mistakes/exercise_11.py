"""Wrong answers to exercise 11, each named after its mistake."""

import copy


def reference(policy):
    frozen = type(policy)()
    for name, child in policy.named_children():
        setattr(frozen, name, child)
    frozen.mean = policy.mean
    return frozen


def buffers_not_copied(policy):
    frozen = type(policy)()
    for new, old in zip(frozen.parameters(), policy.parameters(), strict=True):
        new.data = old.data.clone()
        new.requires_grad = False
    return frozen


def buffers_shared(policy):
    frozen = type(policy)()
    frozen.layers = copy.deepcopy(policy.layers)
    frozen.mean = policy.mean
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    return frozen


def trainable(policy):
    frozen = type(policy)()
    frozen.load_state_dict(policy.state_dict())
    frozen.eval()
    return frozen


def policy_frozen(policy):
    for parameter in policy.parameters():
        parameter.requires_grad = False
    return copy.deepcopy(policy)


def reference_2(policy):
    frozen = copy.copy(policy)
    for parameter in frozen.parameters():
        parameter.requires_grad = False
    return frozen
