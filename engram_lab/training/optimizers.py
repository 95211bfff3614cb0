"""Which parameter is updated how: parameter groups, and the optimisers of a run used as one."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from engram_lab.training.config import TrainConfig
from engram_lab.training.lazy_adam import LazyAdam
from engram_lab.training.muon import Muon

Named = dict[str, nn.Parameter]


def parameter_groups(model: nn.Module) -> dict[str, Named]:
    """Every trainable parameter in exactly one group, by what it is.

    - `table`: memory tables, named `*.table.weight`;
    - `gain`: norms, the memory's gains, biases and whatever else has one axis;
    - `embedding`: token embedding, output head, routers;
    - `hidden`: matrices in between, and stacks of them (experts);
    - `filter`: depthwise convolutions.
    """
    embeddings = {id(layer.weight) for layer in _embedding_layers(model)}
    norms = {
        id(parameter)
        for module in model.modules()
        if "norm" in type(module).__name__.lower()
        for parameter in module.parameters(recurse=False)
    }
    groups: dict[str, Named] = {n: {} for n in ("table", "gain", "embedding", "hidden", "filter")}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.endswith("table.weight"):
            group = "table"
        elif parameter.ndim < 2 or id(parameter) in norms or name.endswith(("gain", "norm")):
            group = "gain"  # the memory's gains have a branch axis, so rank alone does not tell
        elif id(parameter) in embeddings or "router" in name:
            group = "embedding"
        else:
            group = "filter" if "conv" in name else "hidden"
        groups[group][name] = parameter
    return groups


def build_optimizers(model: nn.Module, config: TrainConfig) -> "Optimizers":
    """The optimisers of a run: lazy Adam for tables, AdamW or Muon for the rest, by `config`."""
    groups = parameter_groups(model)
    hidden, decayed = groups["hidden"], groups["embedding"] | groups["filter"]
    parts: dict[str, tuple[Optimizer, Named]] = {}
    if config.optimizer == "muon" and hidden:
        muon = Muon(list(hidden.values()), lr=config.lr, weight_decay=config.weight_decay)
        parts["muon"] = (muon, hidden)
    else:
        decayed = hidden | decayed
    adam_groups = [
        {"params": list(decayed.values()), "weight_decay": config.weight_decay},
        {"params": list(groups["gain"].values()), "weight_decay": 0.0},
    ]
    adam_groups = [group for group in adam_groups if group["params"]]
    if adam_groups:
        adam = AdamW(adam_groups, lr=config.lr, betas=config.betas, fused=True)
        parts["adamw"] = (adam, decayed | groups["gain"])
    if groups["table"]:
        rate = config.lr * config.table_lr_multiplier
        lazy = LazyAdam(list(groups["table"].values()), lr=rate, betas=config.betas)
        parts["table"] = (lazy, groups["table"])
    return Optimizers(parts)


class Optimizers:
    """Several optimisers used as one.

    Args:
        parts: by name, an optimiser and the named parameters it updates.
    """

    def __init__(self, parts: Mapping[str, tuple[Optimizer, Named]]):
        self.parts = dict(parts)
        self._rates = {
            name: [group["lr"] for group in optimizer.param_groups]
            for name, (optimizer, _) in self.parts.items()
        }

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for optimizer, _ in self.parts.values():
            optimizer.step()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimizer, _ in self.parts.values():
            optimizer.zero_grad(set_to_none=True)

    def set_rate_factor(self, factor: float) -> None:
        """Set every learning rate to `factor` times the one it was built with."""
        for name, (optimizer, _) in self.parts.items():
            for group, rate in zip(optimizer.param_groups, self._rates[name], strict=True):
                group["lr"] = rate * factor

    def state_tensors(self) -> dict[str, Tensor]:
        """All optimiser state by `<parameter>/<entry>`, whatever the grouping."""
        return {
            f"{name}/{entry}": value
            for name, state in self._states()
            for entry, value in state.items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state_tensors` gave.

        Raises:
            ValueError: if an entry belongs to no parameter of these optimisers.
        """
        owners = {
            name: (optimizer, parameter)
            for optimizer, named in self.parts.values()
            for name, parameter in named.items()
        }
        unknown = {key.rsplit("/", 1)[0] for key in tensors} - set(owners)
        if unknown:
            raise ValueError(
                "optimiser state must belong to parameters of this model; found "
                f"{sorted(unknown)[:3]}. Resume with the config the checkpoint was written with."
            )
        for key, value in tensors.items():
            name, entry = key.rsplit("/", 1)
            optimizer, parameter = owners[name]
            # lazy Adam keeps its count on the CPU, where it is read
            stays = isinstance(optimizer, LazyAdam) and value.ndim == 0
            optimizer.state[parameter][entry] = value if stays else value.to(parameter.device)

    def _states(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        for optimizer, named in self.parts.values():
            for name, parameter in named.items():
                yield name, optimizer.state.get(parameter, {})


def _embedding_layers(model: nn.Module) -> list[nn.Module]:
    found = []
    for method in ("get_input_embeddings", "get_output_embeddings"):
        layer = getattr(model, method, lambda: None)()
        if layer is not None:
            found.append(layer)
    return found or [m for m in model.modules() if isinstance(m, nn.Embedding)]
