"""Times training steps in PyTorch: `run.py` starts it with the file of a job.

Options of a setting: `compile` with the mode of `torch.compile`, `onednn` to switch oneDNN off, and `products` with the precision
of products in f32.
"""

import torch

import job as jobs
from torch_models import model_of


def optimizer_of(model, stated):
    """Fused AdamW. Only matrices decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [dict(params=matrices, weight_decay=stated["weight_decay"]), dict(params=vectors, weight_decay=0.0)]
    betas = (stated["beta1"], stated["beta2"])
    return torch.optim.AdamW(groups, lr=stated["lr"], betas=betas, eps=stated["eps"], fused=True)


def configure(job):
    """Threads, oneDNN, and the precision of products."""
    torch.set_num_threads(job.threads)
    torch.backends.mkldnn.enabled = job.options.get("onednn", True)
    if "products" in job.options:
        torch.backends.mkldnn.matmul.fp32_precision = job.options["products"]


def main():
    job = jobs.of_arguments()
    configure(job)
    model = model_of(job.config, job.weights())
    optimizer = optimizer_of(model, job.optimizer)
    mode = job.options.get("compile")
    run = torch.compile(model, mode=mode, fullgraph=True) if mode else model
    is_narrow = job.precision == "bf16"

    def step(tokens, labels):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_narrow):
            loss = run(tokens, labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), job.optimizer["clip"])
        optimizer.step()
        return loss.item()

    job.measure([tuple(map(torch.tensor, batch)) for batch in job.batches()], step)


if __name__ == "__main__":
    main()
