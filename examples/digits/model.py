"""The settings of a small network that reads handwritten digits; as a library's defaults would have them."""

LEARNING_RATE = 0.01
HIDDEN_WIDTH = 32  # units of its one hidden layer
BATCH_SIZE = 128  # images a step
MOMENTUM = 0.9
WEIGHT_PENALTY = 0.0001  # pulls the weights towards zero
EPOCHS = 20  # how often it sees each image
