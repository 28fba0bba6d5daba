"""Concept splits between the two CIFARs. Group 0 is the farthest from the classes that the model knows."""

_GROUPS = (
    "wardrobe lamp plain lawn_mower chair poppy clock cloud sunflower telephone",
    "flatfish apple orange plate table tulip bowl television skyscraper ray",
    "palm_tree streetcar sweet_pepper keyboard bottle seal rose couch caterpillar aquarium_fish",
    "castle can bridge lobster house bed fox maple_tree pear woman",
    "willow_tree worm chimpanzee skunk cup mushroom oak_tree cockroach crocodile hamster",
    "girl rocket man tiger bee tank whale baby kangaroo dolphin",
    "possum shark forest pine_tree dinosaur boy porcupine wolf road butterfly",
    "lion mountain crab bicycle turtle beetle train mouse snail otter",
    "bear elephant leopard camel lizard rabbit beaver spider raccoon orchid",
    "cattle shrew motorcycle squirrel snake trout sea tractor bus pickup_truck",
)

CIFAR100_SPLITS: dict[int, tuple[str, ...]] = {number: tuple(line.split()) for number, line in enumerate(_GROUPS)}
"""CIFAR-100 in ten groups by similarity to CIFAR-10: the table in the paper's appendix, in CIFAR-100's own names.

Group 9, the closest, is severity 1; group 0 is severity 10.

>>> CIFAR100_SPLITS[9][-1]
'pickup_truck'
"""

TABLE_WORDS = {
    "pickup_truck": "pickup",
    "pine_tree": "pine",
    "oak_tree": "oak",
    "maple_tree": "maple",
    "palm_tree": "palm",
    "willow_tree": "willow",
    "sweet_pepper": "pepper",
    "aquarium_fish": "goldfish",
    "lawn_mower": "lawnmower",
}
"""Where the paper's table has another word than CIFAR-100's name: it is the one whose word vector was used."""

CIFAR10_SPLITS: dict[int, tuple[str, ...]] = {
    0: ("airplane", "bird"),
    1: ("frog", "cat"),
    2: ("dog", "horse"),
    3: ("automobile", "deer"),
    4: ("ship", "truck"),
}
"""The reverse, which the paper does not have: CIFAR-10 in five groups by similarity to CIFAR-100.

Made by `concept_splits` from GloVe 6B vectors (100 dimensions), with the table's words for CIFAR-100.
"""
