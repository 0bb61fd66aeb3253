"""A recommender by matrix factorisation: gathers and scatters in embedding tables, bound by memory, not arithmetic."""

from typing import ClassVar

import numpy as np

from workloads.training.loop import Floats, Rows, Shapes, Vector, main, normal

USERS, ITEMS, WIDTH = 20_000, 5_000, 16


class Factorisation:
    """rating = user embedding . item embedding (Koren, Bell, Volinsky: Matrix factorization techniques, 2009)."""

    shapes: ClassVar[Shapes] = {"users": (USERS, WIDTH), "items": (ITEMS, WIDTH)}
    examples = 400_000
    learning_rate = 20.0

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self._user = generator.integers(0, USERS, self.examples)
        self._item = generator.integers(0, ITEMS, self.examples)
        taste, trait = normal(generator, (USERS, 4), 0.5), normal(generator, (ITEMS, 4), 1.0)
        self._rating: Floats = (taste[self._user] * trait[self._item]).sum(axis=1)

    def initialise(self, parameters: Vector, generator: np.random.Generator) -> None:
        """Small random embeddings."""
        for name in self.shapes:
            parameters[name][:] = normal(generator, self.shapes[name], 0.3)

    def loss_and_gradients(self, parameters: Vector, gradients: Vector, rows: Rows) -> float:
        """Mean squared error; rows of the tables that the batch does not name get no gradient."""
        user, item = self._user[rows], self._item[rows]
        users, items = parameters["users"][user], parameters["items"][item]
        error = (users * items).sum(axis=1) - self._rating[rows]
        scaled = (error * np.float32(2 / len(rows)))[:, np.newaxis]
        scatter(gradients["users"], user, scaled * items)
        scatter(gradients["items"], item, scaled * users)
        return float(np.square(error).mean())


def scatter(table: Floats, rows: Rows, values: Floats) -> None:
    """Set each row of `table` to the sum of the values given for it, and all other rows to zero."""
    table[:] = 0
    np.add.at(table, rows, values)


if __name__ == "__main__":
    main(Factorisation, batch_size=16384)
