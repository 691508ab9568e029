"""Why turning a constant might move the metric, in a few words, from its name: the second half of a hypothesis."""

from __future__ import annotations

from autoresearch.core.proposers.knobs import words_of

__all__ = ["reason_for"]

# Words of a name, then why up and why down. The first line with a word of the name counts. They speak of what may be,
# not of what is known: the measurement is there to tell.
_BY_WORD: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"WARMUP", "WARM"}),
        "a slower start may avoid early damage",
        "a shorter warm-up leaves more of the budget at full speed",
    ),
    (
        frozenset({"WARMDOWN", "COOLDOWN"}),
        "a longer descent may settle deeper",
        "a shorter descent leaves more of the budget at full speed",
    ),
    (
        frozenset({"FINAL"}),
        "ending at a higher rate may keep learning to the last step",
        "ending at a lower rate may settle deeper",
    ),
    (frozenset({"DROPOUT"}), "more dropout may generalise better", "less dropout may learn faster within the budget"),
    (frozenset({"EPS", "EPSILON"}), "a larger floor damps small noisy steps", "a smaller floor lets small steps count"),
    (
        frozenset({"WEIGHT", "WD"}),
        "more decay keeps weights small and learning lively",
        "less decay may fit better within the budget",
    ),
    (
        frozenset({"LR", "RATE"}),
        "larger steps may learn faster within the budget",
        "smaller steps may settle on a better solution",
    ),
    (
        frozenset({"MOMENTUM", "BETA", "BETAS", "BETA1", "BETA2", "DECAY", "EMA"}),
        "averaging over more steps may calm the noise of small batches",
        "averaging over fewer steps may follow the gradient faster",
    ),
    (frozenset({"CLIP"}), "a looser clip may let useful steps through", "a tighter clip may avoid destructive steps"),
    (
        frozenset({"BATCH", "ACCUM", "ACCUMULATION"}),
        "a larger batch gives a cleaner gradient for each step",
        "a smaller batch gives more steps within the budget",
    ),
    (
        frozenset({"CONTEXT", "SEQ", "SEQUENCE", "BLOCK", "WINDOW"}),
        "seeing further back may predict better",
        "a shorter reach is cheaper and gives more steps within the budget",
    ),
    (
        frozenset({"DEPTH", "LAYER", "LAYERS"}),
        "a deeper model may learn more from each step",
        "a shallower model gets more steps within the budget",
    ),
    (
        frozenset({"WIDTH", "DIM", "EMBD", "HIDDEN", "ASPECT", "EXPANSION", "MLP", "BUCKETS"}),
        "more capacity may learn more from each step",
        "less capacity gets more steps within the budget",
    ),
    (frozenset({"HEAD", "HEADS"}), "more heads may attend to more things", "fewer heads may each see more"),
    (frozenset({"INIT"}), "a larger start may break symmetry sooner", "a smaller start may keep early steps stable"),
    (frozenset({"CAP", "SOFTCAP"}), "a looser cap lets logits be sharper", "a tighter cap may keep training stable"),
    (
        frozenset({"ROTARY", "ROPE"}),
        "slower rotation may tell distant tokens apart better",
        "faster rotation may tell near tokens apart better",
    ),
)


def reason_for(name: str, category: str, direction: int) -> str:
    """Return why turning `name` up (direction 1), down (-1) or over (0) might help.

    Args:
        name: Name of the constant.
        category: Kind of idea, for names that tell nothing.
        direction: Sign of the change; 0 for a choice without an order.
    """
    words = words_of(name)
    if direction:
        for telling, up, down in _BY_WORD:
            if words & telling:
                return up if direction > 0 else down
    if category == "constants":
        return "its present value may not be the best"
    return f"the present choice of {category} may not be the best"
