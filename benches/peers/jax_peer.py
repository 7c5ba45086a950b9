"""Times training steps in JAX: `run.py` starts it with the file of a job. Flags of XLA are in the environment.

Options of a setting: `devices`, the number of host devices that share the sequences of a batch, and `expects`, the name of a call
that the compiled program must have, since XLA ignores flags that it does not support.
"""

import functools
import sys

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import job as jobs
from jax_models import loss_of


def adamw(stated, rate, parameter, gradient, mean, square, step):
    """One update of a parameter and its states. Only matrices decay."""
    mean = stated["beta1"] * mean + (1 - stated["beta1"]) * gradient
    square = stated["beta2"] * square + (1 - stated["beta2"]) * jnp.square(gradient)
    root = jnp.sqrt(square / (1 - stated["beta2"] ** step)) + stated["eps"]
    decayed = parameter * (1 - rate * stated["weight_decay"]) if parameter.ndim > 1 else parameter
    return decayed - rate * mean / (1 - stated["beta1"] ** step) / root, mean, square


def training_step(job, state, step, tokens, labels):
    """The next state and the loss: parameters, means and squares of gradients, each by name."""
    parameters, means, squares = state

    def loss(parameters):
        kind = jnp.bfloat16 if job.precision == "bf16" else jnp.float32
        return loss_of(job.config, {name: value.astype(kind) for name, value in parameters.items()}, tokens, labels)

    value, gradients = jax.value_and_grad(loss)(parameters)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients.values()))
    factor = jnp.minimum(1.0, job.optimizer["clip"] / (norm + 1e-6))
    update = functools.partial(adamw, job.optimizer, job.optimizer["lr"], step=step)
    updated = {
        name: update(parameters[name], gradients[name] * factor, means[name], squares[name]) for name in parameters
    }
    return tuple({name: parts[part] for name, parts in updated.items()} for part in range(3)), value


def shardings(devices):
    """Shardings of the state, which every device has, and of a batch, whose sequences the devices share."""
    mesh = Mesh(jax.devices()[:devices], ("dp",))
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("dp"))


def main():
    job = jobs.of_arguments()
    everywhere, shared = shardings(job.options.get("devices", 1))
    parameters = {name: jax.device_put(value, everywhere) for name, value in job.weights().items()}
    zeros = lambda: {name: jax.device_put(jnp.zeros_like(value), everywhere) for name, value in parameters.items()}
    state = (parameters, zeros(), zeros())
    data = [[jax.device_put(jnp.array(part, jnp.int32), shared) for part in batch] for batch in job.batches()]
    jitted = jax.jit(functools.partial(training_step, job), donate_argnums=0)
    run = jitted.lower(state, jnp.float32(1), *data[0]).compile()
    expected = job.options.get("expects", "")
    if expected not in run.as_text():
        sys.exit(f"error: the compiled program has no {expected}: XLA ignores the flag")
    number = 0

    def step(tokens, labels):
        nonlocal state, number
        number += 1
        state, loss = run(state, jnp.float32(number), tokens, labels)
        return float(jax.block_until_ready((state, loss))[1])

    job.measure(data, step)


if __name__ == "__main__":
    main()
