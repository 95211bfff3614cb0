"""Every experiment of the catalogue, one constant each."""

from engram_lab.experiments.catalog.dspark_budget import DSPARK_BUDGET
from engram_lab.experiments.catalog.dspark_confidence import (
    DSPARK_RELIABILITY,
    DSPARK_RELIABILITY_BINS,
    DSPARK_THRESHOLD,
)
from engram_lab.experiments.catalog.dspark_drafters import (
    DSPARK_DEPTH,
    DSPARK_DRAFTERS,
    DSPARK_LENGTH,
    DSPARK_POSITIONS,
    DSPARK_RANK,
)
from engram_lab.experiments.catalog.dspark_memory import DSPARK_MEMORY, DSPARK_MEMORY_READS
from engram_lab.experiments.catalog.dspark_modes import DSPARK_MODES
from engram_lab.experiments.catalog.dspark_schedule import DSPARK_ROUNDS, DSPARK_SCHEDULE
from engram_lab.experiments.catalog.dspark_serving import DSPARK_SERVING
from engram_lab.experiments.catalog.dspark_training import DSPARK_OBJECTIVE, DSPARK_TRAINING
from engram_lab.experiments.catalog.engram_ablation import (
    ENGRAM_ABLATION,
    ENGRAM_ABLATION_CHAINS,
    ENGRAM_ABLATION_TEXT,
)
from engram_lab.experiments.catalog.engram_allocation import (
    ENGRAM_ALLOCATION,
    ENGRAM_ALLOCATION_CONTROLS,
    ENGRAM_ALLOCATION_D1,
    ENGRAM_ALLOCATION_SHARES,
    ENGRAM_ALLOCATION_TEXT,
    QUICKSTART,
)
from engram_lab.experiments.catalog.engram_collisions import (
    ENGRAM_COLLISIONS,
    ENGRAM_COLLISIONS_FREQUENCY,
    ENGRAM_COLLISIONS_HEADS,
    ENGRAM_COLLISIONS_LOADS,
    ENGRAM_COLLISIONS_PURITY,
    ENGRAM_COLLISIONS_V41,
)
from engram_lab.experiments.catalog.engram_compression import (
    ENGRAM_COMPRESSION,
    ENGRAM_COMPRESSION_GROUPS,
    ENGRAM_COMPRESSION_MINIMAL,
    ENGRAM_COMPRESSION_PAIRS,
    ENGRAM_COMPRESSION_SCRIPTS,
    ENGRAM_COMPRESSION_TEXT,
)
from engram_lab.experiments.catalog.engram_compression_loss import ENGRAM_COMPRESSION_LOSS
from engram_lab.experiments.catalog.engram_depth import (
    ENGRAM_CKA,
    ENGRAM_CKA_ALIGNMENT,
    ENGRAM_CKA_GAIN,
    ENGRAM_ENTITY,
    ENGRAM_LENS,
)
from engram_lab.experiments.catalog.engram_gate_credit import ENGRAM_GATE_CREDIT
from engram_lab.experiments.catalog.engram_gates import ENGRAM_GATES, ENGRAM_GATES_TOPICS
from engram_lab.experiments.catalog.engram_head_to_head import (
    ENGRAM_HEAD_TO_HEAD,
    ENGRAM_HEAD_TO_HEAD_LATE,
    ENGRAM_HEAD_TO_HEAD_TASKS,
    ENGRAM_HEAD_TO_HEAD_TEXT,
)
from engram_lab.experiments.catalog.engram_hot_tier import ENGRAM_HOT_TIER
from engram_lab.experiments.catalog.engram_hot_tier_coverage import ENGRAM_HOT_TIER_COVERAGE
from engram_lab.experiments.catalog.engram_hot_tier_speed import ENGRAM_HOT_TIER_SPEED
from engram_lab.experiments.catalog.engram_long_context import (
    ENGRAM_LONG_CONTEXT,
    ENGRAM_LONG_CONTEXT_ATTENTION,
    ENGRAM_LONG_CONTEXT_LOSS,
    ENGRAM_LONG_CONTEXT_TAUGHT,
    ENGRAM_LONG_CONTEXT_TEXT,
    ENGRAM_LONG_CONTEXT_TEXT_ATTENTION,
)
from engram_lab.experiments.catalog.lens_foreign import (
    LENS_FOREIGN,
    LENS_FOREIGN_ATTENTION,
    LENS_FOREIGN_CKA,
)

__all__ = [
    "DSPARK_BUDGET",
    "DSPARK_DEPTH",
    "DSPARK_DRAFTERS",
    "DSPARK_LENGTH",
    "DSPARK_MEMORY",
    "DSPARK_MEMORY_READS",
    "DSPARK_MODES",
    "DSPARK_OBJECTIVE",
    "DSPARK_POSITIONS",
    "DSPARK_RANK",
    "DSPARK_RELIABILITY",
    "DSPARK_RELIABILITY_BINS",
    "DSPARK_ROUNDS",
    "DSPARK_SCHEDULE",
    "DSPARK_SERVING",
    "DSPARK_THRESHOLD",
    "DSPARK_TRAINING",
    "ENGRAM_ABLATION",
    "ENGRAM_ABLATION_CHAINS",
    "ENGRAM_ABLATION_TEXT",
    "ENGRAM_ALLOCATION",
    "ENGRAM_ALLOCATION_CONTROLS",
    "ENGRAM_ALLOCATION_D1",
    "ENGRAM_ALLOCATION_SHARES",
    "ENGRAM_ALLOCATION_TEXT",
    "ENGRAM_CKA",
    "ENGRAM_CKA_ALIGNMENT",
    "ENGRAM_CKA_GAIN",
    "ENGRAM_COLLISIONS",
    "ENGRAM_COLLISIONS_FREQUENCY",
    "ENGRAM_COLLISIONS_HEADS",
    "ENGRAM_COLLISIONS_LOADS",
    "ENGRAM_COLLISIONS_PURITY",
    "ENGRAM_COLLISIONS_V41",
    "ENGRAM_COMPRESSION",
    "ENGRAM_COMPRESSION_GROUPS",
    "ENGRAM_COMPRESSION_LOSS",
    "ENGRAM_COMPRESSION_MINIMAL",
    "ENGRAM_COMPRESSION_PAIRS",
    "ENGRAM_COMPRESSION_SCRIPTS",
    "ENGRAM_COMPRESSION_TEXT",
    "ENGRAM_ENTITY",
    "ENGRAM_GATES",
    "ENGRAM_GATES_TOPICS",
    "ENGRAM_GATE_CREDIT",
    "ENGRAM_HEAD_TO_HEAD",
    "ENGRAM_HEAD_TO_HEAD_LATE",
    "ENGRAM_HEAD_TO_HEAD_TASKS",
    "ENGRAM_HEAD_TO_HEAD_TEXT",
    "ENGRAM_HOT_TIER",
    "ENGRAM_HOT_TIER_COVERAGE",
    "ENGRAM_HOT_TIER_SPEED",
    "ENGRAM_LENS",
    "ENGRAM_LONG_CONTEXT",
    "ENGRAM_LONG_CONTEXT_ATTENTION",
    "ENGRAM_LONG_CONTEXT_LOSS",
    "ENGRAM_LONG_CONTEXT_TAUGHT",
    "ENGRAM_LONG_CONTEXT_TEXT",
    "ENGRAM_LONG_CONTEXT_TEXT_ATTENTION",
    "LENS_FOREIGN",
    "LENS_FOREIGN_ATTENTION",
    "LENS_FOREIGN_CKA",
    "QUICKSTART",
]
