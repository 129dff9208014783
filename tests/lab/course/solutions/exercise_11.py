import torch


def snapshot(policy):
    frozen = type(policy)()
    with torch.no_grad():
        for name, values in frozen.state_dict().items():
            values.copy_(policy.state_dict()[name])
    for parameter in frozen.parameters():
        parameter.requires_grad = False
    return frozen
