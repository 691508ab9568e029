import json
import math
import random
import sys

STEPS = 500
HEAT = 5.0
COLD = 0.1

cities = json.load(sys.stdin)
rng = random.Random(int(sys.argv[1]))


def length(tour):
    stops = [cities[i] for i in tour]
    return sum(map(math.dist, stops, stops[1:] + stops[:1]))


tour = list(range(len(cities)))
for step in range(STEPS):
    heat = HEAT * (COLD / HEAT) ** (step / STEPS)
    a, b = sorted(rng.sample(tour, 2))
    turned = tour[:a] + tour[a:b][::-1] + tour[b:]
    if rng.random() < math.exp(min(0.0, length(tour) - length(turned)) / heat):
        tour = turned
print(json.dumps(tour))
