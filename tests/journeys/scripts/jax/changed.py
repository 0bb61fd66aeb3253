"""A small network in JAX with optax."""

import jax
import jax.numpy as jnp
import optax

from gavel_runtime.jax import checkpointed

STEPS = 200
x = jax.random.normal(jax.random.key(0), (512, 8))
y = jnp.sin(x.sum(axis=1, keepdims=True))
keys = jax.random.split(jax.random.key(1), 2)
params = {"hidden": 0.3 * jax.random.normal(keys[0], (8, 32)), "out": 0.3 * jax.random.normal(keys[1], (32, 1))}
optimizer = optax.adam(1e-2)
opt_state = optimizer.init(params)


def loss_of(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["hidden"]) @ params["out"] - y) ** 2)


@jax.jit
def update(params, opt_state, step):
    rows = jax.random.randint(jax.random.fold_in(jax.random.key(2), step), (32,), 0, len(x))
    loss, gradients = jax.value_and_grad(loss_of)(params, x[rows], y[rows])
    updates, opt_state = optimizer.update(gradients, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


run = checkpointed((params, opt_state), total=STEPS)
params, opt_state = run.state
for step in run.steps():
    params, opt_state, loss = update(params, opt_state, step)
    run.state = params, opt_state

print("final", float(loss), sum(float(jnp.abs(each).sum()) for each in jax.tree.leaves(params)))
