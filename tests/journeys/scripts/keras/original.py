"""A small network with Keras."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).standard_normal((512, 8)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.build((None, 8))
model.compile(optimizer="adam", loss="mse")
model.fit(x, y, batch_size=32, epochs=8, shuffle=False, verbose=0)
print("final", model.evaluate(x, y, verbose=0), sum(float(np.abs(each).sum()) for each in model.get_weights()))
