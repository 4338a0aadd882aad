"""Programs that look at values of a GPU, each ended by a line of JSON.

Called with "plain" they run as under `memlab phantom`, else with values, as wherever
memlab records.
"""

import hashlib
import json
import sys

import torch
from torch import nn

DEVICE = "cuda"


def known():
    """Integers, booleans and small floats that follow from what the host wrote."""
    ids = torch.tensor([[3, 1, 3, 2], [0, 5, 5, 9]], device=DEVICE)
    mask = ids > 2
    column = torch.zeros(2, 3, dtype=torch.long, device=DEVICE)
    column[:, 1] = 7
    column[0] += 1
    values, indices = ids.max(dim=1)
    return {
        "sum": ids.sum().item(),
        "sorted": ids.sort(dim=1).values.tolist(),
        "masked": ids[mask].tolist(),
        "where": mask.nonzero().tolist(),
        "unique": [part.tolist() for part in torch.unique(ids, return_counts=True)],
        "column": column.tolist(),
        "max": [values.tolist(), indices.tolist()],
        "joined": torch.cat([ids, ids[:, -1:]], dim=1).tolist(),
        "repeated": torch.arange(3, device=DEVICE).repeat_interleave(column[0, :]).tolist(),
        "accuracy": (ids == 5).float().mean().item(),
        "all": [mask.all().item(), mask.any().item(), (ids < 10).all().item()],
        "copied": ids.to(torch.int32).cpu().numpy().tolist(),
    }


def random():
    """Numbers that the device draws; the host's own are left alone."""
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    drawn = torch.randint(0, 5, (100,), device=DEVICE).tolist()
    order = torch.randperm(50, device=DEVICE).tolist()
    weights = torch.tensor([0.0, 0.5, 0.5, 0.0], device=DEVICE)
    picked = torch.multinomial(weights, 50, replacement=True).tolist()
    return {
        "in_range": all(0 <= each < 5 for each in drawn) and len(set(drawn)) > 1,
        "permutation": sorted(order) == list(range(50)),
        "picked": sorted(set(picked)),
        "host": torch.rand(3).tolist() == expected,
    }


def trained():
    """Two parameters after three steps on the device, less those after the same on the host."""
    apart = {}
    for name, options in {"SGD": {"momentum": 0.9}, "AdamW": {}, "Adagrad": {}}.items():
        ends = []
        for device in DEVICE, "cpu":
            weights = [torch.ones(3, device=device, requires_grad=True) for _ in range(2)]
            optimizer = getattr(torch.optim, name)(weights, lr=0.1, **options)
            for _ in range(3):
                loss = (weights[0] * weights[1] - 3).square().mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
            ends.append(torch.cat([weight.detach() for weight in weights]).tolist())
        apart[name] = max(abs(one - other) for one, other in zip(*ends, strict=True))
    return apart


def made_up():
    """What follows from tensors that are too large to be computed."""
    large = torch.randn(2000, 1000, device=DEVICE)
    logits = torch.randn(4, 100_000, device=DEVICE)
    best = logits.topk(3, dim=1).indices
    return {
        "float": large.mean().item(),
        "half": large.half().mean().item(),
        "finite": torch.isfinite(large).all().item(),
        "nan": torch.isnan(large).any().item(),
        "pick": logits.argmax(dim=1).tolist(),
        "distinct": len(set(best[0].tolist())) == 3 and best.max().item() < 100_000,
    }


def scaler():
    """A gradient scaler, norms that must be finite, an accuracy, early stopping."""
    model = nn.Linear(1000, 1000).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(DEVICE)
    batch = torch.randn(512, 1000, device=DEVICE)
    for _ in range(2):
        with torch.autocast(DEVICE, torch.float16):
            loss = model(batch).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {"scale": scaler.get_scale(), "states": len(optimizer.state), "loss": loss.item()}


def sampling():
    """As PPO does: torch.distributions with its checks."""
    actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(DEVICE)
    optimizer = torch.optim.Adam(actor.parameters())
    observed = torch.zeros(128, 4, device=DEVICE)
    for step in range(128):
        policy = torch.distributions.Categorical(logits=actor(observed[step : step + 1]))
        action = policy.sample()
        observed[step] = action.cpu().item()
    policy = torch.distributions.Categorical(logits=actor(observed))
    spread = torch.distributions.Normal(actor(observed).mean(1), torch.ones(128).to(DEVICE))
    loss = -(policy.log_prob(policy.sample()) + spread.log_prob(spread.sample())).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
    optimizer.step()
    return {"actions": sorted(set(observed.cpu()[:, 0].tolist())), "loss": loss.item() > 0}


def masked_accuracy():
    """As PyG's GCN does: its masks come from the host."""
    mask = torch.zeros(2000, dtype=torch.bool)
    mask[:140] = True
    mask, labels = mask.to(DEVICE), torch.randint(0, 7, (2000,)).to(DEVICE)
    features, model = torch.randn(2000, 500).to(DEVICE), nn.Linear(500, 7).to(DEVICE)
    predicted = model(features).argmax(dim=-1)
    right = int((predicted[mask] == labels[mask]).sum())
    nn.functional.cross_entropy(model(features)[mask], labels[mask]).backward()
    return {"rows": model(features)[mask].shape[0], "accuracy": right / int(mask.sum()) <= 1}


def evaluation():
    """As nanoGPT does: losses by item(), the best is kept, tokens until an end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50_000, 32), nn.Linear(32, 50_000)).to(DEVICE)
    losses = torch.zeros(4)
    for at in range(4):
        tokens = torch.randint(0, 50_000, (8, 64)).to(DEVICE)
        logits = model(tokens).view(-1, 50_000)
        losses[at] = nn.functional.cross_entropy(logits, tokens.view(-1)).item()
    tokens, steps = torch.zeros(2, 1, dtype=torch.long, device=DEVICE), 0
    ended = torch.zeros(2, dtype=torch.bool, device=DEVICE)
    while not ended.all() and steps < 20:
        following = model(tokens[:, -1]).argmax(dim=-1, keepdim=True)
        tokens, steps = torch.cat([tokens, following], dim=1), steps + 1
        ended |= following[:, 0] == 0
    return {"loss": losses.mean().item(), "steps": steps, "shape": list(tokens.shape)}


def gathered():
    """A value that the host wrote, after collectives of 200 MiB of which nothing is known."""
    torch.distributed.init_process_group(
        "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    share = torch.empty(1 << 18, device=DEVICE)
    whole = [torch.empty_like(share) for _ in range(200)]
    for each in whole:
        torch.distributed.all_gather_into_tensor(each, share)
    total = torch.arange(5, device=DEVICE).sum().item()
    torch.distributed.destroy_process_group()
    return {"total": total}


def sequence():
    """Each of the allocator's events, of a program that decides nothing by values."""
    torch.cuda.memory._record_memory_history(stacks="python")
    model = nn.Sequential(
        nn.Embedding(1000, 64),
        nn.TransformerEncoderLayer(64, 2, 128, batch_first=True),
        nn.Linear(64, 1000),
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        tokens = torch.randint(0, 1000, (8, 100)).to(DEVICE)
        tokens = torch.where(tokens > 3, tokens, tokens + 1).flip(0)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens.float().mean().item()
        torch.topk(loss.expand(5), 2).indices.cumsum(0).tolist()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    starts, seen = [], hashlib.sha256()
    for event in events:
        if event["action"] == "segment_alloc":
            starts.append((event["addr"], event["size"]))
        where = [
            (number, event["addr"] - start)
            for number, (start, size) in enumerate(starts)
            if start <= event["addr"] < start + size
        ]
        seen.update(repr((event["action"], event["size"], where)).encode())
    return {"events": len(events), "sequence": seen.hexdigest()}


def main():
    if sys.argv[2:] != ["plain"]:
        from memlab._native import bridge

        values = bridge.load()
        assert values.watch_values()
        print(json.dumps({**globals()[sys.argv[1]](), "made_up": values.made_up_values()}))
    else:
        print(json.dumps(globals()[sys.argv[1]]()))


main()
